#include "kernels/cuda/cuda_device.cuh"
#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/element.cuh"
#include "kernels/cuda/row_sum.cuh"

namespace motley::cuda {
namespace {

template <class T>
struct Forward {
  const T* x;
  const float *gain, *bias;
  T* out;
  float *mean, *rstd;
  int64_t width;
};

/// One block for each row.
template <class T>
__global__ void normalise(Forward<T> f) {
  const int64_t row = blockIdx.x;
  const T* x = f.x + row * f.width;
  T* out = f.out + row * f.width;
  float sum = 0;
  for (int64_t i = threadIdx.x; i < f.width; i += blockDim.x) sum += wide(x[i]);
  const float mean = block_sum(sum) / static_cast<float>(f.width);
  float squares = 0;
  for (int64_t i = threadIdx.x; i < f.width; i += blockDim.x)
    squares += (wide(x[i]) - mean) * (wide(x[i]) - mean);
  const float variance = block_sum(squares) / static_cast<float>(f.width);
  const float rstd = 1 / sqrtf(variance + static_cast<float>(kLayerNormEpsilon));
  for (int64_t i = threadIdx.x; i < f.width; i += blockDim.x)
    put(out + i, (wide(x[i]) - mean) * rstd * f.gain[i] + f.bias[i]);
  if (threadIdx.x == 0) {
    f.mean[row] = mean;
    f.rstd[row] = rstd;
  }
}

template <class T>
struct Backward {
  const T* x;
  const float *gain, *mean, *rstd;
  const T* d_out;
  T* d_x;
  float *gain_gradient, *bias_gradient;
  int64_t rows, width;
  bool accumulate_input, accumulate_parameters;
};

/// One block for each row. With n = (x - mean)·rstd and g = d_out·gain:
/// d_x = rstd·(g - mean(g) - n·mean(g·n)).
template <class T>
__global__ void input_gradient(Backward<T> b) {
  const int64_t row = blockIdx.x;
  const T* x = b.x + row * b.width;
  const T* d_out = b.d_out + row * b.width;
  T* d_x = b.d_x + row * b.width;
  const float mean = b.mean[row], rstd = b.rstd[row];
  float sum_g = 0, sum_gn = 0;
  for (int64_t i = threadIdx.x; i < b.width; i += blockDim.x) {
    const float g = wide(d_out[i]) * b.gain[i];
    sum_g += g;
    sum_gn += g * ((wide(x[i]) - mean) * rstd);
  }
  const float mean_g = block_sum(sum_g) / static_cast<float>(b.width);
  const float mean_gn = block_sum(sum_gn) / static_cast<float>(b.width);
  for (int64_t i = threadIdx.x; i < b.width; i += blockDim.x) {
    const float n = (wide(x[i]) - mean) * rstd;
    const float d = rstd * (wide(d_out[i]) * b.gain[i] - mean_g - n * mean_gn);
    put(d_x + i, b.accumulate_input ? wide(d_x[i]) + d : d);
  }
}

template <class T>
__global__ void parameter_gradients(Backward<T> b) {
  const int64_t column = summed_column();
  const bool in_range = column < b.width;
  const float gain = sum_rows(b.rows, in_range, [&](int64_t row) {
    const int64_t i = row * b.width + column;
    return wide(b.d_out[i]) * ((wide(b.x[i]) - b.mean[row]) * b.rstd[row]);
  });
  const float bias = sum_rows(b.rows, in_range,
                              [&](int64_t row) { return wide(b.d_out[row * b.width + column]); });
  if (threadIdx.y != 0 || !in_range) return;
  b.gain_gradient[column] = (b.accumulate_parameters ? b.gain_gradient[column] : 0) + gain;
  b.bias_gradient[column] = (b.accumulate_parameters ? b.bias_gradient[column] : 0) + bias;
}

}  // namespace

template <Precision kPrecision>
void layer_norm_forward(Device& device, const LayerNormForwardArgs& args) {
  using T = Element<kPrecision>;
  CudaDevice& gpu = cuda_device(device);
  if (args.rows == 0) return;
  launch(gpu, "layer norm", {static_cast<unsigned>(args.rows)}, normalise<T>,
         Forward<T>{args.x.as<const T>(), args.gain.as<const float>(), args.bias.as<const float>(),
                    args.out.as<T>(), args.mean.as<float>(), args.rstd.as<float>(), args.width});
}

template <Precision kPrecision>
void layer_norm_backward(Device& device, const LayerNormBackwardArgs& args) {
  using T = Element<kPrecision>;
  CudaDevice& gpu = cuda_device(device);
  const Backward<T> backward{args.x.as<const T>(),
                             args.gain.as<const float>(),
                             args.mean.as<const float>(),
                             args.rstd.as<const float>(),
                             args.d_out.as<const T>(),
                             args.d_x.as<T>(),
                             args.gain_gradient.as<float>(),
                             args.bias_gradient.as<float>(),
                             args.rows,
                             args.width,
                             args.accumulate_input,
                             args.accumulate_parameters};
  if (args.width == 0) return;
  launch(gpu, "layer norm parameter gradients", {column_blocks(args.width), column_threads()},
         parameter_gradients<T>, backward);
  if (args.rows == 0) return;
  launch(gpu, "layer norm gradient", {static_cast<unsigned>(args.rows)}, input_gradient<T>,
         backward);
}

MOTLEY_IN_EACH_PRECISION(layer_norm_forward, LayerNormForwardArgs);
MOTLEY_IN_EACH_PRECISION(layer_norm_backward, LayerNormBackwardArgs);

}  // namespace motley::cuda
