# Target motley_version: core/version.h and one generated source, so that a commit recompiles one file only.

set(MOTLEY_COMPILER "${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}")
foreach(part CUDA NCCL MPI)
  set(MOTLEY_${part}_VERSION "")
endforeach()
set(MOTLEY_CUDA_ARCHITECTURES "")
if(MOTLEY_HAVE_CUDA)
  set(MOTLEY_CUDA_VERSION "${CUDAToolkit_VERSION}")
  motley_compiled_code(MOTLEY_CUDA_ARCHITECTURES ${CMAKE_CUDA_ARCHITECTURES})
endif()
if(MOTLEY_HAVE_NCCL)
  set(MOTLEY_NCCL_VERSION "${NCCL_VERSION}")
endif()
if(MOTLEY_HAVE_MPI)
  set(MOTLEY_MPI_VERSION "standard ${MPI_CXX_VERSION}")
  if(MPI_CXX_LIBRARY_VERSION_STRING)
    string(REGEX REPLACE "[,\r\n].*" "" MOTLEY_MPI_VERSION "${MPI_CXX_LIBRARY_VERSION_STRING}")
  endif()
endif()

# Two steps: what the configuration knows is filled in here, @MOTLEY_GIT@ at every build.
set(MOTLEY_GIT "@MOTLEY_GIT@")
configure_file(cmake/version.cc.in "${PROJECT_BINARY_DIR}/generated/version.cc.in" @ONLY)
set(motley_version_source "${PROJECT_BINARY_DIR}/generated/version.cc")
add_custom_target(motley_version_source
  COMMAND "${CMAKE_COMMAND}" "-DSOURCE_DIR=${PROJECT_SOURCE_DIR}"
          "-DTEMPLATE=${PROJECT_BINARY_DIR}/generated/version.cc.in" "-DOUTPUT=${motley_version_source}"
          -P "${PROJECT_SOURCE_DIR}/cmake/write_version.cmake"
  BYPRODUCTS "${motley_version_source}" COMMENT "" VERBATIM)

motley_library(NAME motley_version SOURCES "${motley_version_source}" HEADERS core/version.h
               PUBLIC nlohmann_json::nlohmann_json)
add_dependencies(motley_version motley_version_source)
