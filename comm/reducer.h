#pragma once
// Performs a ReductionPlan, chunk by chunk, as far as the others have come: what has arrived is
// added up while the next chunks are under way. Elements stay where they lie, in runs of a flat
// buffer.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "comm/sum_type.h"
#include "core/reduction.h"
#include "core/result.h"

namespace motley {

/// Says when elements may be read, and is told when they have their sums. Called by the one thread
/// that moves the reduction on.
class ElementGate {
 public:
  virtual ~ElementGate() = default;
  /// Whether these runs of the flat buffer hold what this rank contributes to a chunk, or may be
  /// overwritten where it does not. Asked again until they do, of several chunks in turn; what it
  /// takes is begun when it is asked first.
  virtual Result<bool> readable(std::span<const ElementRun> runs) = 0;
  /// They have their totals.
  virtual Result<Unit> written(std::span<const ElementRun> runs) = 0;
};

class Reducer {
 public:
  virtual ~Reducer() = default;

  /// Begins a reduction; all ranks begin the same. `flat` has all runs, in elements of the plan's
  /// size; both it and the gate are borrowed until it is done. `gate` null: all may be read
  /// already.
  virtual Result<Unit> begin(std::span<std::byte> flat, SumType type,
                             ElementGate* gate = nullptr) = 0;
  /// The same on a thread of its own, which calls the gate: it goes on while this one computes, or
  /// calls the communicator for something else.
  virtual Result<Unit> begin_beside(std::span<std::byte> flat, SumType type, ElementGate& gate) = 0;
  /// Until all of this rank's part is done. kPeerLost names who was waited for in which phase, when
  /// nothing has moved for the group's timeout, or up to twice that where who is waited for may
  /// wait for others.
  virtual Result<Unit> wait() = 0;
  /// Of begin_beside(), for at most so long: whether it is done. wait() follows all the same.
  virtual Result<bool> wait_for(std::chrono::nanoseconds time) = 0;

  /// Bytes this rank has put on links between islands.
  virtual int64_t bytes_sent() const = 0;

  /// Whether any class is compressed where it crosses links. What is lost then stays with the
  /// reducer, and is added to the same elements the next time.
  virtual bool compresses() const = 0;
  /// How the reductions that begin from now on do, instead of as the plan says; all ranks say the
  /// same. Off, or the plan's codec with another fraction. Of a reducer that does not it is
  /// ignored.
  virtual void set_codec(const CodecSpec& codec) = 0;
  /// What this rank has lost so far, into float32 `flat`, laid out as those that begin() is given.
  /// Elements that it does not encode stay as they are. Summed over the ranks it is all that the
  /// sums lack.
  virtual void gather_residuals(std::span<float> flat) const = 0;
  /// Instead of what it had: each element goes to one of the ranks that encode it. All ranks that
  /// have an element give the same.
  virtual void restore_residuals(std::span<const float> flat) = 0;
};

}  // namespace motley
