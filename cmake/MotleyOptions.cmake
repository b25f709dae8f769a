# What a build may choose, and what follows for every target.

function(motley_tristate name description)
  set(${name} AUTO CACHE STRING "${description} (AUTO: when found, ON: fail if missing, OFF)")
  set_property(CACHE ${name} PROPERTY STRINGS AUTO ON OFF)
  if(NOT "${${name}}" MATCHES "^(AUTO|ON|OFF)$")
    message(FATAL_ERROR "${name} is '${${name}}'; it must be AUTO, ON or OFF")
  endif()
endfunction()

motley_tristate(MOTLEY_CUDA "CUDA module")
motley_tristate(MOTLEY_NCCL "NCCL header, which our declarations of it are tested against")
motley_tristate(MOTLEY_MPI "MPI module")
motley_tristate(MOTLEY_TESTS "Tests")
option(MOTLEY_WERROR "Warnings are errors" OFF)
option(MOTLEY_STATIC_CXX "Link the C++ library statically, for machines that have an older one" OFF)
option(MOTLEY_FUZZ "Fuzzers led by coverage: libFuzzer, of clang" OFF)
set(MOTLEY_SANITIZE "" CACHE STRING "Sanitizers, as -fsanitize= takes them")

if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
  set(motley_default_isa x86-64-v3)
endif()
set(MOTLEY_CPU_ISA "${motley_default_isa}" CACHE STRING
    "Instruction set of the CPU kernels, as -march= takes it; empty: the compiler's")

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "Build type" FORCE)
endif()
# Debug runs whole trainings under sanitizers, hence -Og: a quarter less to compile than -O1, for as quick tests. Release keeps line tables for profilers and stack traces.
set(CMAKE_CXX_FLAGS_DEBUG "-Og -g")
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O3 -g1 -DNDEBUG")
set(CMAKE_CUDA_FLAGS_RELWITHDEBINFO "-O3 -lineinfo -DNDEBUG")

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)  # libraries are linked into modules too
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_VERIFY_INTERFACE_HEADER_SETS ON)  # built by the target all_verify_interface_header_sets
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib")

if(MOTLEY_SANITIZE)
  # What a null pointer, one to an object that is gone or one far beyond it does the address sanitizer shows, too; object-size
  # sees little at -Og. They and debug information beyond lines are half of the compile time.
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${MOTLEY_SANITIZE};-fno-sanitize=null,object-size,vptr,pointer-overflow;-fno-sanitize-recover=all;-fno-omit-frame-pointer;-g1>")
  add_link_options("-fsanitize=${MOTLEY_SANITIZE}")
endif()

if(MOTLEY_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL Clang)
    message(FATAL_ERROR "MOTLEY_FUZZ needs clang, as the preset fuzz has it")
  endif()
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-fsanitize=fuzzer-no-link>")
endif()

if(MOTLEY_STATIC_CXX)
  add_link_options(-static-libstdc++ -static-libgcc)
endif()

find_program(MOTLEY_CCACHE ccache)
if(MOTLEY_CCACHE)
  foreach(language C CXX CUDA)
    if(NOT DEFINED CMAKE_${language}_COMPILER_LAUNCHER)
      set(CMAKE_${language}_COMPILER_LAUNCHER "${MOTLEY_CCACHE}")
    endif()
  endforeach()
endif()

find_program(MOTLEY_LLD ld.lld)
if(MOTLEY_LLD)
  add_link_options(-fuse-ld=lld)
endif()
