# Finds NCCL: NCCL_FOUND, NCCL_VERSION, target NCCL::nccl. NCCL_ROOT (CMake or environment) is searched first, then
# the toolkit's folders, then the Python wheels, where the library has only its versioned name.

set(nccl_hints "${CUDAToolkit_LIBRARY_DIR}" ${CUDAToolkit_INCLUDE_DIRS})
file(GLOB nccl_wheels /usr/local/lib/python3*/*-packages/nvidia/nccl /usr/lib/python3*/*-packages/nvidia/nccl)

find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${nccl_hints} PATHS ${nccl_wheels} PATH_SUFFIXES include)
find_library(NCCL_LIBRARY NAMES nccl libnccl.so.2 HINTS ${nccl_hints} PATHS ${nccl_wheels} PATH_SUFFIXES lib lib64)
mark_as_advanced(NCCL_INCLUDE_DIR NCCL_LIBRARY)

if(NCCL_INCLUDE_DIR)
  set(nccl_parts)
  foreach(part MAJOR MINOR PATCH)
    file(STRINGS "${NCCL_INCLUDE_DIR}/nccl.h" nccl_line REGEX "^#define NCCL_${part} +[0-9]+")
    string(REGEX MATCH "[0-9]+$" nccl_number "${nccl_line}")
    list(APPEND nccl_parts "${nccl_number}")
  endforeach()
  list(JOIN nccl_parts "." NCCL_VERSION)
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(NCCL REQUIRED_VARS NCCL_LIBRARY NCCL_INCLUDE_DIR VERSION_VAR NCCL_VERSION)

if(NCCL_FOUND AND NOT TARGET NCCL::nccl)
  add_library(NCCL::nccl UNKNOWN IMPORTED)
  set_target_properties(NCCL::nccl PROPERTIES
    IMPORTED_LOCATION "${NCCL_LIBRARY}" INTERFACE_INCLUDE_DIRECTORIES "${NCCL_INCLUDE_DIR}")
endif()
