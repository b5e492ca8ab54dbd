// The verify step's kernels: conv1d update, gated delta rule in WY form, a stream of weights.
//
// Sizes are compile-time constants, so that a thread keeps its state in registers:
//   VL_KEY_HEADS VL_VALUE_HEADS VL_KEY_DIM VL_VALUE_DIM (see verifylab/verify_shape.py).
// One launch serves a run of sequences that all verify `rows` tokens, 1 to VL_MAX_ROWS; sequence
// i owns rows [i*rows, (i+1)*rows) of every row buffer.
// A state lives at `state + slot(i) * stride`; slot(i) is table[i] (indirect form, read at
// replay) or i (direct form: `state` is then the address of the first of consecutive slots).
// The same file is compiled by NVRTC, by nvcc, and by g++ against tests/cpu_cuda.h.

#define VL_TAPS 4
#define VL_MAX_ROWS 8
#define VL_CONV_THREADS 128
// Threads of vl_wy that share a multiprocessor: as many as the registers allow without a spill
// (compiler's report, nvcc 13.0). 384 let eight sequences of 48 heads run in one wave on 132.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
#define VL_THREADS_PER_SM 256
#else
#define VL_THREADS_PER_SM 384
#endif
#define VL_BLOCKS_PER_SM               \
  (VL_VALUE_DIM > VL_THREADS_PER_SM ? 1 : \
   VL_VALUE_DIM < 24 ? 16 : VL_THREADS_PER_SM / VL_VALUE_DIM)
#define VL_Q_CHANNELS (VL_KEY_HEADS * VL_KEY_DIM)
#define VL_CONV_DIM (2 * VL_Q_CHANNELS + VL_VALUE_HEADS * VL_VALUE_DIM)
#define VL_HEAD_STATE (VL_KEY_DIM * VL_VALUE_DIM)
#define VL_H_STATE ((long long)VL_VALUE_HEADS * VL_HEAD_STATE)
#define VL_CONV_STATE ((long long)VL_TAPS * VL_CONV_DIM)
#define VL_HEADS_PER_KEY (VL_VALUE_HEADS / VL_KEY_HEADS)
// Lanes that hold one key head, four channels each: a power of two, at most a warp.
#define VL_LANES (VL_KEY_DIM / 4)
// Under the square root of the L2 norm, as gated-delta-net models have it.
#define VL_NORM_EPS 1e-6f

#if VL_VALUE_HEADS % VL_KEY_HEADS != 0
#error "value heads must be a multiple of key heads"
#endif
#if (VL_LANES & (VL_LANES - 1)) != 0 || VL_LANES > 32 || VL_KEY_DIM % 4 != 0
#error "key dim must be 4 times a power of two, at most 128"
#endif
#if VL_VALUE_DIM % VL_LANES != 0 || (VL_VALUE_DIM > 32 && VL_VALUE_DIM % 32 != 0)
#error "value dim must be a multiple of key dim / 4 and, above 32, of 32"
#endif

#if VL_CONV_DIM % 4 != 0
#error "conv dim must be a multiple of 4: rows are read 16 bytes at a time"
#endif

static __device__ __forceinline__ float4 vl_load4(const float* p) {
  return *reinterpret_cast<const float4*>(p);
}

static __device__ __forceinline__ void vl_store4(float* p, float4 a) {
  *reinterpret_cast<float4*>(p) = a;
}

static __device__ __forceinline__ float vl_dot4(float4 a, float4 b, float sum) {
  return fmaf(a.w, b.w, fmaf(a.z, b.z, fmaf(a.y, b.y, fmaf(a.x, b.x, sum))));
}

// Sum over the VL_LANES lanes that share a key head; every lane of `mask` must call it.
static __device__ __forceinline__ float vl_head_sum(float x, unsigned mask) {
#pragma unroll
  for (int step = VL_LANES / 2; step > 0; step /= 2) x += __shfl_xor_sync(mask, x, step);
  return x;
}

static __device__ __forceinline__ float vl_tap(float w0, float w1, float w2, float w3, float a,
                                               float b, float c, float x) {
  const float y = fmaf(w3, x, fmaf(w2, c, fmaf(w1, b, w0 * a)));
  return y / (1.0f + expf(-y));  // SiLU
}

// grid (ceil(VL_CONV_DIM / 4 / VL_CONV_THREADS), sequences), block VL_CONV_THREADS: a thread owns
// four channels for all its rows. Snapshot t is the taps after token t, for all but the last
// token, whose taps are the live state.
extern "C" __global__ void __launch_bounds__(VL_CONV_THREADS)
    vl_conv(int rows, const float* __restrict__ x, const float* __restrict__ w,
            float* __restrict__ state, const int* __restrict__ table, float* __restrict__ snap,
            float* __restrict__ qkv) {
  const int sequence = blockIdx.y;
  const int channel = 4 * (blockIdx.x * VL_CONV_THREADS + threadIdx.x);
  // Lanes past the end stay for the shuffles; they read channel 0 and write nothing.
  const bool inside = channel < VL_CONV_DIM;
  const int c = inside ? channel : 0;
  const int slot = table ? table[sequence] : sequence;
  float* live = state + slot * VL_CONV_STATE + c;
  const float4 w0 = vl_load4(w + c), w1 = vl_load4(w + VL_CONV_DIM + c);
  const float4 w2 = vl_load4(w + 2 * VL_CONV_DIM + c), w3 = vl_load4(w + 3 * VL_CONV_DIM + c);
  float4 h0 = vl_load4(live + VL_CONV_DIM), h1 = vl_load4(live + 2 * VL_CONV_DIM);
  float4 h2 = vl_load4(live + 3 * VL_CONV_DIM);
  for (int t = 0; t < rows; ++t) {
    const long long row = (long long)sequence * rows + t;
    const float4 in = vl_load4(x + row * VL_CONV_DIM + c);
    float4 y;
    y.x = vl_tap(w0.x, w1.x, w2.x, w3.x, h0.x, h1.x, h2.x, in.x);
    y.y = vl_tap(w0.y, w1.y, w2.y, w3.y, h0.y, h1.y, h2.y, in.y);
    y.z = vl_tap(w0.z, w1.z, w2.z, w3.z, h0.z, h1.z, h2.z, in.z);
    y.w = vl_tap(w0.w, w1.w, w2.w, w3.w, h0.w, h1.w, h2.w, in.w);
    const float norm2 = vl_head_sum(vl_dot4(y, y, 0.0f), 0xffffffffu);
    if (channel < 2 * VL_Q_CHANNELS) {
      const float scale = 1.0f / sqrtf(norm2 + VL_NORM_EPS);
      y.x *= scale, y.y *= scale, y.z *= scale, y.w *= scale;
    }
    if (inside) {
      vl_store4(qkv + row * VL_CONV_DIM + c, y);
      float* to = t < rows - 1 ? snap + row * VL_CONV_STATE + c : live;
      vl_store4(to, h0), vl_store4(to + VL_CONV_DIM, h1);
      vl_store4(to + 2 * VL_CONV_DIM, h2), vl_store4(to + 3 * VL_CONV_DIM, in);
    }
    h0 = h1, h1 = h2, h2 = in;
  }
}

// grid (VL_VALUE_HEADS, sequences), block VL_VALUE_DIM: a thread owns one column of one head's
// state and keeps it in registers from the one read to the `rows` writes. The pseudo-values u
// solve (I + L) u = beta (v - gamma S0^T k), with, for i < t,
// L[t][i] = beta_t (alpha_t ... alpha_{i+1}) (k_t . k_i): the WY form. Given u, the state after
// each token is one fused multiply-add per element, and is written as it appears.
// The token loops stay rolled: unrolled, the compiler hoists their loads and spills the state.
extern "C" __global__ void __launch_bounds__(VL_VALUE_DIM, VL_BLOCKS_PER_SM)
    vl_wy(int rows, const float* __restrict__ qkv, const float* __restrict__ g,
          const float* __restrict__ beta, float* __restrict__ state,
          const int* __restrict__ table, float* __restrict__ snap, float* __restrict__ out) {
  const int head = blockIdx.x;
  const int sequence = blockIdx.y;
  const int column = threadIdx.x;
  const int slot = table ? table[sequence] : sequence;
  const int row0 = sequence * rows;
  const int offset = head * VL_HEAD_STATE + column;
  float* live = state + slot * VL_H_STATE + offset;
  const float* q = qkv + row0 * VL_CONV_DIM + (head / VL_HEADS_PER_KEY) * VL_KEY_DIM;
  const float* k = q + VL_Q_CHANNELS;
  const float* v = qkv + row0 * VL_CONV_DIM + 2 * VL_Q_CHANNELS + head * VL_VALUE_DIM + column;
  __shared__ float gram[VL_MAX_ROWS * (VL_MAX_ROWS - 1) / 2];
  __shared__ float pseudo[VL_MAX_ROWS][VL_VALUE_DIM];  // a thread touches its own column only

  // All loads of the column first: what follows hides their latency.
  float s[VL_KEY_DIM];
#pragma unroll
  for (int j = 0; j < VL_KEY_DIM; ++j) s[j] = live[j * VL_VALUE_DIM];

  // k_t . k_i for i < t, once a block: a pair to each group of VL_LANES lanes.
  const unsigned mask = VL_VALUE_DIM >= 32 ? 0xffffffffu : (1u << (VL_VALUE_DIM % 32)) - 1u;
  const int pairs = rows * (rows - 1) / 2;
  const int lane = column % VL_LANES;
#pragma unroll 1
  for (int base = 0; base < pairs; base += VL_VALUE_DIM / VL_LANES) {
    const int pair = base + column / VL_LANES;
    int t = 1, i = pair < pairs ? pair : 0;
    while (i >= t) i -= t++;
    const float dot = vl_dot4(vl_load4(k + t * VL_CONV_DIM + 4 * lane),
                              vl_load4(k + i * VL_CONV_DIM + 4 * lane), 0.0f);
    const float sum = vl_head_sum(dot, mask);
    if (lane == 0 && pair < pairs) gram[pair] = sum;
  }
  __syncthreads();

  float gamma = 1.0f;
#pragma unroll 1
  for (int t = 0; t < rows; ++t) {
    const float* kt = k + t * VL_CONV_DIM;
    float d0 = 0.0f, d1 = 0.0f, d2 = 0.0f, d3 = 0.0f;
#pragma unroll
    for (int j = 0; j < VL_KEY_DIM; j += 4) {
      const float4 kk = vl_load4(kt + j);
      d0 = fmaf(kk.x, s[j], d0), d1 = fmaf(kk.y, s[j + 1], d1);
      d2 = fmaf(kk.z, s[j + 2], d2), d3 = fmaf(kk.w, s[j + 3], d3);
    }
    const int scalar = (row0 + t) * VL_VALUE_HEADS + head;
    float decay = expf(g[scalar]);
    gamma *= decay;
    float seen = gamma * ((d0 + d1) + (d2 + d3));
#pragma unroll 1
    for (int i = t - 1; i >= 0; --i) {
      seen = fmaf(decay * gram[t * (t - 1) / 2 + i], pseudo[i][column], seen);
      decay *= expf(g[scalar - (t - i) * VL_VALUE_HEADS]);
    }
    pseudo[t][column] = beta[scalar] * (v[t * VL_CONV_DIM] - seen);
  }

#pragma unroll 1
  for (int t = 0; t < rows; ++t) {
    float* to = t < rows - 1 ? snap + (row0 + t) * VL_H_STATE + offset : live;
    const float* kt = k + t * VL_CONV_DIM;
    const float* qt = q + t * VL_CONV_DIM;
    const float alpha = expf(g[(row0 + t) * VL_VALUE_HEADS + head]);
    const float u = pseudo[t][column];
    float o0 = 0.0f, o1 = 0.0f, o2 = 0.0f, o3 = 0.0f;
#pragma unroll
    for (int j = 0; j < VL_KEY_DIM; j += 4) {
      const float4 kk = vl_load4(kt + j);
      const float4 qq = vl_load4(qt + j);
      s[j] = fmaf(kk.x, u, alpha * s[j]);
      s[j + 1] = fmaf(kk.y, u, alpha * s[j + 1]);
      s[j + 2] = fmaf(kk.z, u, alpha * s[j + 2]);
      s[j + 3] = fmaf(kk.w, u, alpha * s[j + 3]);
      to[j * VL_VALUE_DIM] = s[j];
      to[(j + 1) * VL_VALUE_DIM] = s[j + 1];
      to[(j + 2) * VL_VALUE_DIM] = s[j + 2];
      to[(j + 3) * VL_VALUE_DIM] = s[j + 3];
      o0 = fmaf(qq.x, s[j], o0), o1 = fmaf(qq.y, s[j + 1], o1);
      o2 = fmaf(qq.z, s[j + 2], o2), o3 = fmaf(qq.w, s[j + 3], o3);
    }
    out[((row0 + t) * VL_VALUE_HEADS + head) * VL_VALUE_DIM + column] = (o0 + o1) + (o2 + o3);
  }
}

// Stand-in for the dense weights: reads `vectors` float4 and keeps a sum per thread, so that the
// reads cannot be dropped. Writes 4 bytes a thread.
extern "C" __global__ void vl_stream(const float* __restrict__ weights, long long vectors,
                                     float* __restrict__ sink) {
  const long long thread = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  const long long threads = (long long)gridDim.x * blockDim.x;
  float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll 4
  for (long long i = thread; i < vectors; i += threads) {
    const float4 a = vl_load4(weights + 4 * i);
    sum.x += a.x, sum.y += a.y, sum.z += a.z, sum.w += a.w;
  }
  sink[thread] = (sum.x + sum.y) + (sum.z + sum.w);
}

// A node that does next to nothing: what `calibrate` builds graphs of.
extern "C" __global__ void vl_tick(int* __restrict__ counter) {
  if (threadIdx.x == 0) *counter += 1;
}
