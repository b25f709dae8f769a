#include "core/philox.h"
#include "kernels/reference/reference_ops.h"

namespace motley::reference {

void dropout(Device&, const DropoutArgs& args) {
  const auto* position = args.position.as<const int64_t>();
  const auto* x = args.x.as<const double>();
  auto* out = args.out.as<double>();
  for (int64_t i = 0; i < args.samples * args.elements_per_sample; ++i) {
    const int64_t sample = i / args.elements_per_sample, element = i % args.elements_per_sample;
    const auto draws = philox4x32(
        {static_cast<uint32_t>(element / 4), static_cast<uint32_t>(position[1] + sample),
         static_cast<uint32_t>(position[0]),
         static_cast<uint32_t>(256 * args.site) + static_cast<uint32_t>(RandomUse::kDropout)},
        {static_cast<uint32_t>(args.seed), static_cast<uint32_t>(args.seed >> 32)});
    const bool keep = draws[static_cast<size_t>(element % 4)] >= args.threshold();
    out[i] = keep ? x[i] / (1 - args.rate) : 0;
  }
}

}  // namespace motley::reference
