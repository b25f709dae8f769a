#pragma once
// Names and steps of the commit protocol that saving and importing share.

#include <span>
#include <string>
#include <string_view>

#include "core/file_system.h"
#include "core/manifest.h"
#include "core/result.h"

namespace motley {

/// Where a checkpoint is written before it is committed, and where one goes to be removed.
std::string temporary_directory_name(std::string_view checkpoint);  ///< ".tmp-step-00001200.e7"
std::string trash_directory_name(std::string_view checkpoint);      ///< ".trash-step-00001200.e7"

/// The name without either prefix.
std::string_view without_prefix(std::string_view name);

/// kIo when a checkpoint of so many bytes does not fit there.
Result<Unit> check_room(FileSystem& fs, const std::string& checkpoints_dir, Bytes checkpoint);

/// Writes, syncs and closes a new file.
Result<Unit> write_file_durably(FileSystem& fs, const std::string& path,
                                std::span<const std::byte> content);

/// The commit point: syncs the temporary directory of `checkpoint`, whose files are all durable,
/// gives it its name and syncs the parent. kIo if that name is taken.
Result<Unit> publish(FileSystem& fs, const std::string& checkpoints_dir,
                     const std::string& checkpoint);

/// Removes what is there, which somebody else may be removing too.
Result<Unit> remove_if_there(FileSystem& fs, const std::string& path);

/// Takes its name away first, so that it is never half there. No error when it is gone.
Result<Unit> remove_checkpoint(FileSystem& fs, const std::string& checkpoints_dir,
                               const std::string& checkpoint);

/// What a failed reading says of a checkpoint: kCorrupt where it lacks the file, or its content is
/// wrong; kIo where the system does not give it back, which may be the reader's own trouble.
ErrorCode judged(const Error& error);

/// The manifest in `directory` (a path), which must be that of `checkpoint`, with every file there
/// and of its size; else kCorrupt or kIo (`judged`), naming the directory. kUnsupported when it is
/// of another version.
Result<Manifest> read_manifest(FileSystem& fs, const std::string& directory,
                               const std::string& checkpoint);

}  // namespace motley
