#pragma once
// The door between the program and lib/motley_mpi.so, the only thing that is linked with MPI.

#include "comm/communicator.h"
#include "comm/transport.h"

namespace motley {

/// Bump when Transport or CommunicatorOptions changes: program and module must agree.
inline constexpr int kMpiModuleVersion = 2;

/// What the module exports under these names, without mangling. Open may be called once in a
/// process; it starts MPI.
using MpiModuleVersion = int (*)();
using MpiModuleOpen = Result<std::unique_ptr<Transport>> (*)(const CommunicatorOptions& options);
inline constexpr const char* kMpiModuleVersionSymbol = "motley_mpi_version";
inline constexpr const char* kMpiModuleOpenSymbol = "motley_mpi_open";

}  // namespace motley
