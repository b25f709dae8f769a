#pragma once
// The door between the program and lib/motley_mpi.so, the only thing that is linked with MPI.

#include "comm/communicator.h"
#include "comm/transport.h"

namespace motley {

/// Bump when Transport or CommunicatorOptions changes: program and module must agree.
inline constexpr int kMpiModuleVersion = 5;

/// What the module exports under these names, without mangling. Open may be called once in a
/// process; it starts MPI.
using MpiModuleVersion = int (*)();
using MpiModuleOpen = Result<std::unique_ptr<Transport>> (*)(const CommunicatorOptions& options);
using MpiModuleLibrary = std::string (*)();
inline constexpr const char* kMpiModuleVersionSymbol = "motley_mpi_version";
inline constexpr const char* kMpiModuleLibrarySymbol = "motley_mpi_library";
inline constexpr const char* kMpiModuleOpenSymbol = "motley_mpi_open";

/// "Open MPI v4.1.4", as the library itself says; MPI is not started. kBrokenInstall as
/// open_mpi_communicator().
Result<std::string> mpi_library();

}  // namespace motley
