# Which CUDA toolkit a build takes and which GPUs it compiles for. Functions only, so that tests/unit/cmake can ask them.

# CUDA 13 has left out Volta (sm_70); of CUDA 12, only the later ones know Blackwell (sm_100, sm_120).
set(MOTLEY_CUDA13_GPUS 75 80 86 89 90 100 120)
set(MOTLEY_CUDA12_GPUS 70 75 80 86 89 90)

# motley_nvcc_version(result text): "13.0" of what `nvcc --version` prints; empty if that is not nvcc.
function(motley_nvcc_version result text)
  set(${result} "" PARENT_SCOPE)
  if(text MATCHES "release ([0-9]+[.][0-9]+)")
    set(${result} "${CMAKE_MATCH_1}" PARENT_SCOPE)
  endif()
endfunction()

# motley_toolkit_fault(result version wanted): why CUDA `version` cannot be taken, in one line; empty when it can. `wanted`: the
# major version that a preset is for, empty for any.
function(motley_toolkit_fault result version wanted)
  set(${result} "" PARENT_SCOPE)
  set(preset_of_12 cuda12)
  set(preset_of_13 cuda)
  string(REGEX MATCH "^[0-9]+" major "${version}")
  if(NOT major)
    set(${result} "it is not NVIDIA's nvcc, which alone is supported" PARENT_SCOPE)
  elseif(major LESS 12)
    set(${result} "found CUDA ${version}, C++20 needs CUDA 12 or 13: install one of them and use the preset cuda12 or cuda" PARENT_SCOPE)
  elseif(wanted STREQUAL "12" AND NOT major EQUAL 12)
    set(${result} "found CUDA ${version}, the preset cuda12 needs CUDA 12: use the preset cuda, or set CUDACXX to the nvcc of CUDA 12" PARENT_SCOPE)
  elseif(wanted AND major LESS wanted)
    set(${result} "found CUDA ${version}, the preset ${preset_of_${wanted}} needs CUDA ${wanted}: use the preset ${preset_of_${major}}, or set CUDACXX to the nvcc of CUDA ${wanted}" PARENT_SCOPE)
  endif()
endfunction()

# motley_default_architectures(result version known): for CMAKE_CUDA_ARCHITECTURES: machine code for each GPU of the toolkit's
# preset that is among `known` (the lines of `nvcc --list-gpu-arch`), and PTX of the newest, from which drivers compile for
# GPUs newer still.
function(motley_default_architectures result version known)
  set(gpus ${MOTLEY_CUDA13_GPUS})
  if(version VERSION_LESS 13)
    set(gpus ${MOTLEY_CUDA12_GPUS})
  endif()
  set(architectures "")
  foreach(gpu IN LISTS gpus)
    if(known MATCHES "compute_${gpu}([^0-9]|$)")
      list(APPEND architectures "${gpu}-real")
    endif()
  endforeach()
  list(JOIN architectures ";" text)
  string(REGEX REPLACE "-real$" "" text "${text}")
  set(${result} "${text}" PARENT_SCOPE)
endfunction()

# motley_compiled_code(result architectures...): what that list makes of nvcc's `code=`: "sm_80 sm_90 compute_90", machine code
# before PTX. Words such as `native` stay as they are.
function(motley_compiled_code result)
  set(real "")
  set(virtual "")
  foreach(architecture IN LISTS ARGN)
    string(REGEX REPLACE "-(real|virtual)$" "" gpu "${architecture}")
    if(NOT gpu MATCHES "^[0-9]+[a-z]?$")
      list(APPEND real "${gpu}")
      continue()
    endif()
    if(NOT architecture MATCHES "-virtual$")
      list(APPEND real "sm_${gpu}")
    endif()
    if(NOT architecture MATCHES "-real$")
      list(APPEND virtual "compute_${gpu}")
    endif()
  endforeach()
  list(JOIN real " " text)
  foreach(code IN LISTS virtual)
    string(STRIP "${text} ${code}" text)
  endforeach()
  set(${result} "${text}" PARENT_SCOPE)
endfunction()
