// Stands in for the CUDA names that kernels.cu uses, so that g++ compiles and a CPU runs it.
//
// Blocks run one after the other. The threads of a block are fibers (ucontext) that take turns:
// __syncthreads and a shuffle give way until all threads (or all lanes of the warp) are there, so
// a missing barrier shows as a wrong number, not as a race that may hide.
#pragma once
#include <math.h>
#include <stdlib.h>
#include <ucontext.h>

#include <memory>
#include <vector>

#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ static  // one block at a time

struct float4 {
  float x, y, z, w;
};
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
struct uint3_cpu {
  unsigned x, y, z;
};
static uint3_cpu threadIdx, blockIdx, blockDim, gridDim;

namespace cpu {
struct Fiber {
  ucontext_t context;
  std::unique_ptr<char[]> stack{new char[256 * 1024]};
  bool done = false;
  int barriers = 0;  // passed or waiting at
};
static std::vector<Fiber> fibers;
static ucontext_t scheduler;
static void (*body)(void*);
static void* arguments;
static unsigned current;
static float lanes[1024];

static void give_way() {
  swapcontext(&fibers[current].context, &scheduler);
  threadIdx = {current, 0, 0};
}

// Waits until the fibers [first, last) have all come to this barrier. Barriers of a block and of
// a warp count alike, so every thread must meet the same number of both before a block's.
static void meet(unsigned first, unsigned last) {
  const int mine = ++fibers[current].barriers;
  for (;;) {
    bool all = true;
    for (unsigned i = first; i < last; ++i) {
      // A thread left while others wait for it.
      if (fibers[i].done && fibers[i].barriers < mine) abort();
      all = all && fibers[i].barriers >= mine;
    }
    if (all) return;
    give_way();
  }
}

static void enter() {
  body(arguments);
  fibers[current].done = true;
}

template <class Call>
void launch(unsigned grid_x, unsigned grid_y, unsigned block, Call call) {
  gridDim = {grid_x, grid_y, 1};
  blockDim = {block, 1, 1};
  body = [](void* p) { (*static_cast<Call*>(p))(); };
  arguments = &call;
  if (fibers.size() != block) fibers = std::vector<Fiber>(block);
  for (unsigned y = 0; y < grid_y; ++y)
    for (unsigned x = 0; x < grid_x; ++x) {
      blockIdx = {x, y, 0};
      for (Fiber& f : fibers) {
        f.done = false;
        f.barriers = 0;
        getcontext(&f.context);
        f.context.uc_stack.ss_sp = f.stack.get();
        f.context.uc_stack.ss_size = 256 * 1024;
        f.context.uc_link = &scheduler;
        makecontext(&f.context, enter, 0);
      }
      for (bool busy = true; busy;) {
        busy = false;
        for (current = 0; current < block; ++current) {
          if (fibers[current].done) continue;
          busy = true;
          threadIdx = {current, 0, 0};
          swapcontext(&scheduler, &fibers[current].context);
        }
      }
    }
}
}  // namespace cpu

inline void __syncthreads() { cpu::meet(0, blockDim.x); }

inline float __shfl_xor_sync(unsigned mask, float value, int lane_mask) {
  const unsigned first = cpu::current / 32 * 32;
  const unsigned last = first + 32 < blockDim.x ? first + 32 : blockDim.x;
  const unsigned width = last - first;
  if (mask != (width == 32 ? 0xffffffffu : (1u << width) - 1u)) abort();  // lanes left out
  cpu::lanes[cpu::current] = value;
  cpu::meet(first, last);
  const float other = cpu::lanes[first + ((cpu::current - first) ^ (unsigned)lane_mask)];
  cpu::meet(first, last);
  return other;
}
