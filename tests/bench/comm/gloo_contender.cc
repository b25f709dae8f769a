#include <gloo/allreduce_halving_doubling.h>
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <vector>

#include "tests/bench/comm/contender.h"

namespace motley {
namespace {

class GlooContender final : public Contender {
 public:
  explicit GlooContender(const GlooOptions& options)
      : halving_doubling_(options.halving_doubling),
        context_(std::make_shared<gloo::rendezvous::Context>(options.rank, options.size)) {
    gloo::transport::tcp::attr network;
    network.iface = options.interface;
    auto device = gloo::transport::tcp::CreateDevice(network);
    gloo::rendezvous::FileStore store(options.store);
    context_->connectFullMesh(store, device);
  }

  /// Gloo plans an algorithm for one buffer, and then runs it as often as one likes.
  std::span<float> prepare(size_t count) override {
    algorithm_.reset();
    floats_.resize(count);
    const std::vector<float*> buffers = {floats_.data()};
    const int size = static_cast<int>(count);
    if (halving_doubling_)
      algorithm_ = std::make_unique<gloo::AllreduceHalvingDoubling<float>>(context_, buffers, size);
    else
      algorithm_ = std::make_unique<gloo::AllreduceRingChunked<float>>(context_, buffers, size);
    return floats_;
  }

  std::span<const float> all_reduce() override {
    algorithm_->run();
    return floats_;
  }

 private:
  const bool halving_doubling_;
  const std::shared_ptr<gloo::rendezvous::Context> context_;
  std::vector<float> floats_;
  std::unique_ptr<gloo::Algorithm> algorithm_;
};

}  // namespace

std::unique_ptr<Contender> gloo_contender(const GlooOptions& options) {
  return std::make_unique<GlooContender>(options);
}

}  // namespace motley
