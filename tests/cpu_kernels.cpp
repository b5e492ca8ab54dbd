// kernels.cu on the CPU, behind plain C functions that ctypes can call.
#include "cpu_cuda.h"
#include "kernels.cu"

extern "C" void cpu_vl_conv(unsigned gx, unsigned gy, unsigned block, int rows, const float* x,
                            const float* w, float* state, const int* table, float* snap,
                            float* qkv) {
  cpu::launch(gx, gy, block, [&] { vl_conv(rows, x, w, state, table, snap, qkv); });
}

extern "C" void cpu_vl_wy(unsigned gx, unsigned gy, unsigned block, int rows, const float* qkv,
                          const float* g, const float* beta, float* state, const int* table,
                          float* snap, float* out) {
  cpu::launch(gx, gy, block, [&] { vl_wy(rows, qkv, g, beta, state, table, snap, out); });
}

extern "C" void cpu_vl_stream(unsigned gx, unsigned gy, unsigned block, const float* weights,
                              long long vectors, float* sink) {
  cpu::launch(gx, gy, block, [&] { vl_stream(weights, vectors, sink); });
}

extern "C" void cpu_vl_tick(unsigned gx, unsigned gy, unsigned block, int* counter) {
  cpu::launch(gx, gy, block, [&] { vl_tick(counter); });
}
