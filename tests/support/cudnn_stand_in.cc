// A libcudnn.so.9 for tests: computes graphs of the operations that kernels/cuda/cudnn_graph.h
// makes, in the host's memory; on a stream of an emulated GPU once that comes so far. Its engine of
// first choice says that its results differ from run to run. Everything of a graph that is not
// inside it must be given, aligned as its description says; the workspace is scribbled over.

#include <algorithm>
#include <exception>
#include <utility>

#include "tests/support/cudnn_execution.h"
#include "tests/support/emulated_stream.h"

#ifndef STAND_IN_VERSION
#define STAND_IN_VERSION 91900
#endif

namespace {

using namespace motley::cudnn;  // NOLINT: its declarations are what is stood in for
using motley::testing::Execution;
using motley::testing::Object;

constexpr Status kRefused{2000};
constexpr int kEngines = 2;  // by the library's preference; the first does not repeat its bits

Object& object_of(Descriptor descriptor) { return *static_cast<Object*>(descriptor); }

size_t size_of(AttributeType type) {
  switch (type) {
    case AttributeType::kBoolean:
    case AttributeType::kChar:
      return 1;
    case AttributeType::kHandle:
    case AttributeType::kInt64:
    case AttributeType::kPointer:
    case AttributeType::kDescriptor:
      return 8;
    default:
      return 4;
  }
}

}  // namespace

extern "C" {

size_t cudnnGetVersion() { return STAND_IN_VERSION; }
const char* cudnnGetErrorString(Status status) {
  return status == Status::kSuccess ? "success" : "refused by the stand-in";
}
void cudnnGetLastErrorString(char* text, size_t size) {
  if (size > 0) text[0] = '\0';
}

/// The handle is the stream.
Status cudnnCreate(Handle* handle) {
  *handle = new Stream(nullptr);
  return Status::kSuccess;
}
Status cudnnDestroy(Handle handle) {
  delete static_cast<Stream*>(handle);
  return Status::kSuccess;
}
Status cudnnSetStream(Handle handle, Stream stream) {
  *static_cast<Stream*>(handle) = stream;
  return Status::kSuccess;
}

Status cudnnBackendCreateDescriptor(DescriptorType type, Descriptor* descriptor) {
  *descriptor = new Object{type};
  return Status::kSuccess;
}
Status cudnnBackendDestroyDescriptor(Descriptor descriptor) {
  delete static_cast<Object*>(descriptor);
  return Status::kSuccess;
}
Status cudnnBackendSetAttribute(Descriptor descriptor, Attribute name, AttributeType type,
                                int64_t count, const void* values) {
  Object& object = object_of(descriptor);
  if (object.finished || count < 1) return kRefused;
  const auto* first = static_cast<const std::byte*>(values);
  object.attributes[name] = {
      type, count, {first, first + static_cast<size_t>(count) * size_of(type)}};
  return Status::kSuccess;
}
Status cudnnBackendFinalize(Descriptor descriptor) {
  return std::exchange(object_of(descriptor).finished, true) ? kRefused : Status::kSuccess;
}

Status cudnnBackendGetAttribute(Descriptor descriptor, Attribute name, AttributeType, int64_t most,
                                int64_t* count, void* values) {
  const Object& object = object_of(descriptor);
  *count = 1;
  switch (name) {
    case Attribute::kHeuristicResults:
      *count = std::min<int64_t>(most, kEngines);
      for (int64_t i = 0; i < *count; ++i) {
        Object& config = object_of(static_cast<Descriptor*>(values)[i]);
        config.engine = static_cast<int>(i);
        config.attributes[Attribute::kHeuristicGraph] =
            object.attributes.at(Attribute::kHeuristicGraph);
      }
      return Status::kSuccess;
    case Attribute::kConfigEngine:
      object_of(*static_cast<Descriptor*>(values)).engine = object.engine;
      return Status::kSuccess;
    case Attribute::kEngineNumericalNotes:
      *static_cast<NumericalNote*>(values) = NumericalNote::kNondeterministic;
      *count = object.engine == 0 ? 1 : 0;
      return Status::kSuccess;
    case Attribute::kConfigWorkspaceSize:
    case Attribute::kPlanWorkspaceSize:
      *static_cast<int64_t*>(values) =
          motley::testing::workspace_of(motley::testing::graph_of(object));
      return Status::kSuccess;
    default:
      return kRefused;
  }
}

Status cudnnBackendExecute(Handle handle, Descriptor plan, Descriptor pack) {
  if (!object_of(plan).finished || !object_of(pack).finished) return kRefused;
  if (object_of(plan).object(Attribute::kPlanConfig).engine == 0) return kRefused;
  try {
    const Execution execution(object_of(plan), object_of(pack));
    const auto piece = [execution] {
      Execution(execution).run();  // a captured one is run again
      return true;
    };
    if (Stream stream = *static_cast<Stream*>(handle); stream != nullptr)
      static_cast<motley::testing::EmulatedStream*>(stream)->enqueue(piece);
    else
      piece();
  } catch (const std::exception&) {
    return kRefused;
  }
  return Status::kSuccess;
}
}
