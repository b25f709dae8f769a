#include "kernels/cuda/lt_matmul.cuh"

namespace motley::cuda {
namespace {

/// Runs steps until one fails.
class Steps {
 public:
  template <class Step>
  Steps& then(Step&& step) {
    if (status_ == CUBLAS_STATUS_SUCCESS) status_ = step();
    return *this;
  }
  cublasStatus_t status() const { return status_; }

 private:
  cublasStatus_t status_ = CUBLAS_STATUS_SUCCESS;
};

template <class T>
cublasStatus_t set(cublasLtMatmulDesc_t product, cublasLtMatmulDescAttributes_t attribute,
                   const T& value) {
  return cublasLtMatmulDescSetAttribute(product, attribute, &value, sizeof value);
}

template <class T>
cublasStatus_t set(cublasLtMatmulPreference_t wish, cublasLtMatmulPreferenceAttributes_t attribute,
                   const T& value) {
  return cublasLtMatmulPreferenceSetAttribute(wish, attribute, &value, sizeof value);
}

template <class Layout>
cublasStatus_t lay_out(Layout& layout, cudaDataType_t type, int64_t rows, int64_t columns,
                       int64_t ld) {
  cublasLtMatrixLayout_t created = nullptr;
  const auto status = cublasLtMatrixLayoutCreate(&created, type, static_cast<uint64_t>(rows),
                                                 static_cast<uint64_t>(columns), ld);
  layout.reset(created);
  return status;
}

}  // namespace

LtMatmul::~LtMatmul() {
  if (handle_ != nullptr) cublasLtDestroy(handle_);
}

cublasStatus_t LtMatmul::start(void* workspace, size_t workspace_size, const Options& options) {
  workspace_ = workspace;
  workspace_size_ = workspace_size;
  options_ = options;
  return cublasLtCreate(&handle_);
}

cublasStatus_t LtMatmul::prepare(const LtProblem& problem) {
  const auto [at, is_new] = choices_.try_emplace(problem);
  Choice& choice = at->second;
  if (is_new) {
    choice.status = describe(problem, choice);
    if (choice.status == CUBLAS_STATUS_SUCCESS) choice.status = choose(problem, choice);
  }
  return choice.status;
}

cublasStatus_t LtMatmul::describe(const LtProblem& p, Choice& choice) const {
  // The addresses are set by run(); here they say how they are aligned.
  const auto* aligned = reinterpret_cast<const void*>(static_cast<uintptr_t>(p.alignment));
  cublasLtMatmulDesc_t product = nullptr;
  const bool tf32 = options_.tf32 && p.a_type == CUDA_R_32F;
  const auto created = cublasLtMatmulDescCreate(
      &product, tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F);
  choice.product.reset(product);
  const auto operation = [](bool transpose) { return transpose ? CUBLAS_OP_T : CUBLAS_OP_N; };
  const auto setting = [&](cublasLtMatmulDescAttributes_t attribute, const auto& value) {
    return [=] { return set(product, attribute, value); };
  };
  Steps steps;
  steps.then([=] { return created; })
      .then(setting(CUBLASLT_MATMUL_DESC_TRANSA, operation(p.transpose_a)))
      .then(setting(CUBLASLT_MATMUL_DESC_TRANSB, operation(p.transpose_b)))
      .then(setting(CUBLASLT_MATMUL_DESC_EPILOGUE, p.epilogue));
  if (options_.multiprocessors > 0)
    steps.then(setting(CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, int32_t{options_.multiprocessors}));
  if (p.scaled)
    steps.then(setting(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, aligned))
        .then(setting(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, aligned));
  if ((p.epilogue & CUBLASLT_EPILOGUE_BIAS) != 0)
    steps.then(setting(CUBLASLT_MATMUL_DESC_BIAS_POINTER, aligned));
  if (p.auxiliary_ld != 0)
    steps.then(setting(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, aligned))
        .then(setting(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, p.auxiliary_ld));
  const int64_t a_rows = p.transpose_a ? p.k : p.m, b_rows = p.transpose_b ? p.n : p.k;
  steps.then([&] { return lay_out(choice.a, p.a_type, a_rows, p.m + p.k - a_rows, p.lda); })
      .then([&] { return lay_out(choice.b, p.b_type, b_rows, p.k + p.n - b_rows, p.ldb); })
      .then([&] { return lay_out(choice.d, p.output_type, p.m, p.n, p.ldd); });
  return steps.status();
}

// Parts of a sum over k that are computed apart must be joined in float32, not in the type of the
// output.
cublasStatus_t LtMatmul::choose(const LtProblem& problem, Choice& choice) const {
  cublasLtMatmulPreference_t created = nullptr;
  const auto status = cublasLtMatmulPreferenceCreate(&created);
  const Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy> wish(created);
  const auto wishing = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
    return [=] { return set(created, attribute, value); };
  };
  cublasLtMatmulHeuristicResult_t found{};
  int count = 0;
  Steps steps;
  steps.then([=] { return status; })
      .then(wishing(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{workspace_size_}))
      .then(wishing(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                    uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE}))
      .then(wishing(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, problem.alignment))
      .then(wishing(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, problem.alignment))
      .then(wishing(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, problem.alignment))
      .then(wishing(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, problem.alignment))
      .then([&] {
        return cublasLtMatmulAlgoGetHeuristic(handle_, choice.product.get(), choice.a.get(),
                                              choice.b.get(), choice.d.get(), choice.d.get(),
                                              created, 1, &found, &count);
      })
      .then([&] { return count == 0 ? CUBLAS_STATUS_NOT_SUPPORTED : found.state; });
  choice.algorithm = found.algo;
  return steps.status();
}

cublasStatus_t LtMatmul::run(const LtProblem& problem, const LtOperands& operands,
                             cudaStream_t stream) {
  const Choice& choice = choices_.at(problem);
  const float alpha = 1, beta = problem.accumulate ? 1 : 0;
  auto* product = choice.product.get();
  Steps steps;
  if (problem.scaled)
    steps.then([&] { return set(product, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, operands.a_scale); })
        .then([&] { return set(product, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, operands.b_scale); });
  if (operands.bias != nullptr)
    steps.then([&] { return set(product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, operands.bias); });
  if (operands.auxiliary != nullptr)
    steps.then([&] {
      return set(product, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, operands.auxiliary);
    });
  steps.then([&] {
    return cublasLtMatmul(handle_, product, &alpha, operands.a, choice.a.get(), operands.b,
                          choice.b.get(), &beta, operands.d, choice.d.get(), operands.d,
                          choice.d.get(), &choice.algorithm, workspace_, workspace_size_, stream);
  });
  return steps.status();
}

std::string LtMatmul::version() {
  int version[3] = {};
  cublasLtGetProperty(MAJOR_VERSION, &version[0]);
  cublasLtGetProperty(MINOR_VERSION, &version[1]);
  cublasLtGetProperty(PATCH_LEVEL, &version[2]);
  return std::to_string(version[0]) + "." + std::to_string(version[1]) + "." +
         std::to_string(version[2]);
}

}  // namespace motley::cuda
