# Sets MOTLEY_HAVE_CUDA; a machine without nvcc configures CPU-only.

set(MOTLEY_HAVE_CUDA OFF)
set(MOTLEY_FOUND_CUDA OFF CACHE INTERNAL "MOTLEY_HAVE_CUDA, for scripts")
if(MOTLEY_CUDA STREQUAL OFF)
  return()
endif()

# nvcc is seldom in PATH where the toolkit was installed by NVIDIA's packages.
if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
  find_program(MOTLEY_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda PATH_SUFFIXES bin)
  mark_as_advanced(MOTLEY_NVCC)
  if(MOTLEY_NVCC)
    set(CMAKE_CUDA_COMPILER "${MOTLEY_NVCC}")
  endif()
endif()

# Must stand before the language is enabled, else CMake picks one old architecture.
if(NOT CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES "80-real;86-real;89-real;90" CACHE STRING "CUDA architectures to compile for")
endif()

include(CheckLanguage)
check_language(CUDA)
if(CMAKE_CUDA_COMPILER)
  enable_language(CUDA)
  find_package(CUDAToolkit QUIET)
endif()
if(NOT CMAKE_CUDA_COMPILER OR NOT CUDAToolkit_FOUND)
  if(MOTLEY_CUDA STREQUAL ON)
    message(FATAL_ERROR "MOTLEY_CUDA=ON but no CUDA toolkit was found; put nvcc in PATH or set CUDACXX")
  endif()
  return()
endif()
set(MOTLEY_HAVE_CUDA ON)
set(MOTLEY_FOUND_CUDA ON CACHE INTERNAL "MOTLEY_HAVE_CUDA, for scripts")

# CMake 3.25 drops C++20 for nvcc without a word.
if(CMAKE_VERSION VERSION_LESS 3.26 AND NOT "cuda_std_20" IN_LIST CMAKE_CUDA_COMPILE_FEATURES)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
  list(APPEND CMAKE_CUDA_COMPILE_FEATURES cuda_std_20)
endif()
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
set(CMAKE_CUDA_EXTENSIONS OFF)
set(CMAKE_CUDA_RUNTIME_LIBRARY Static)  # one package runs with and without a GPU
