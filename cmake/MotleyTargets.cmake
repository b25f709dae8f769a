# The functions that make every target of ours. Sources and headers are listed, relative to the folder of the caller.

# Warnings: private to our own targets, never handed on.
add_library(motley_flags INTERFACE)
target_compile_options(motley_flags INTERFACE
  "$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wshadow;-Wnon-virtual-dtor;-Woverloaded-virtual;-Wfloat-conversion;-Wcast-align>"
  # A forgotten field or case must not compile, whatever the preset: tables of operations rely on it.
  "$<$<COMPILE_LANGUAGE:CXX>:-Werror=missing-field-initializers;-Werror=switch;-Werror=return-type>"
  # g++ 12 reports this falsely in libstdc++'s strings.
  "$<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-restrict>"
  # The compiler may not fuse a*b+c as it likes: `exact` promises the same bits from every build of a machine's class.
  "$<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off>")
if(MOTLEY_SANITIZE)  # instrumented variants look uninitialised to g++ 12
  target_compile_options(motley_flags INTERFACE "$<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-maybe-uninitialized>")
endif()
if(MOTLEY_WERROR)
  target_compile_options(motley_flags INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:-Werror>")
endif()

# The instruction set of the CPU kernels. Only kernels/ links it: everything else runs on any machine, also a login node.
add_library(motley_cpu_isa INTERFACE)
target_compile_options(motley_cpu_isa INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:-O3>")
if(MOTLEY_CPU_ISA)
  target_compile_options(motley_cpu_isa INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:-march=${MOTLEY_CPU_ISA}>")
endif()

# For the targets of a folder whose sources read the same large headers: sixteen of them rather than eight read those once.
macro(motley_shares_large_headers)
  if(CMAKE_UNITY_BUILD)
    set(CMAKE_UNITY_BUILD_BATCH_SIZE 16)
  endif()
endmacro()

# For the targets of a folder in which no raw memory is read as something else: checks of alignment are a fifth of what it
# takes to compile under sanitizers.
macro(motley_reads_no_raw_memory)
  if(MOTLEY_SANITIZE)
    add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-fno-sanitize=alignment>")
  endif()
endmacro()

# The same for one in which nothing computes for long either: half of the time to compile it goes into optimising what waits
# for others anyway, and into reading large headers.
macro(motley_computes_little)
  motley_reads_no_raw_memory()
  if(MOTLEY_SANITIZE)
    add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-O0>")
    # Accesses are checked by calls, which compile sooner than code at each does.
    add_compile_options("$<$<COMPILE_LANG_AND_ID:CXX,GNU>:--param=asan-instrumentation-with-call-threshold=0>")
  else()
    add_compile_options("$<$<AND:$<COMPILE_LANGUAGE:CXX>,$<NOT:$<CONFIG:Debug>>>:-O1>")
  endif()
  motley_shares_large_headers()
endmacro()

# Everything a user runs: the programs and their modules, without the tests.
add_custom_target(motley_programs)

function(motley_check_arguments function)
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "${function}: unknown arguments ${arg_UNPARSED_ARGUMENTS}")
  endif()
  if(NOT arg_NAME)
    message(FATAL_ERROR "${function}: NAME is missing")
  endif()
endfunction()

# motley_library(NAME n [SOURCES a.cc ...] [HEADERS a.h ...] [PUBLIC libs] [PRIVATE libs])
# A static library; without SOURCES a header-only one. Headers are included from the root of the repository and each must
# compile alone.
function(motley_library)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "NAME" "SOURCES;HEADERS;PUBLIC;PRIVATE")
  motley_check_arguments(motley_library)
  if(arg_SOURCES)
    set(scope PUBLIC)
    add_library(${arg_NAME} STATIC ${arg_SOURCES})
    target_link_libraries(${arg_NAME} PRIVATE motley_flags ${arg_PRIVATE})
  else()
    set(scope INTERFACE)
    add_library(${arg_NAME} INTERFACE)
  endif()
  target_link_libraries(${arg_NAME} ${scope} ${arg_PUBLIC})
  target_include_directories(${arg_NAME} ${scope} "${PROJECT_SOURCE_DIR}")
  # A header with a source of its own is what that includes first (tests/lint); the others are compiled alone.
  set(alone)
  foreach(header IN LISTS arg_HEADERS)
    string(REGEX REPLACE "h$" "cc" source "${header}")
    if(NOT source IN_LIST arg_SOURCES)
      list(APPEND alone "${header}")
    else()
      target_sources(${arg_NAME} PRIVATE "${header}")
    endif()
  endforeach()
  if(alone)
    target_sources(${arg_NAME} ${scope} FILE_SET HEADERS BASE_DIRS "${PROJECT_SOURCE_DIR}" FILES ${alone})
  endif()
endfunction()

# motley_program(NAME n SOURCES main.cc ... [LINK libs]): a program in bin/.
function(motley_program)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "NAME" "SOURCES;LINK")
  motley_check_arguments(motley_program)
  add_executable(${arg_NAME} ${arg_SOURCES})
  target_link_libraries(${arg_NAME} PRIVATE motley_flags ${arg_LINK} ${CMAKE_DL_LIBS})
  target_include_directories(${arg_NAME} PRIVATE "${PROJECT_SOURCE_DIR}")
  add_dependencies(motley_programs ${arg_NAME})
endfunction()

# motley_module(NAME n SOURCES ... [LINK libs]): lib/n.so, opened with dlopen(RTLD_LOCAL) by the program that wants it. Only
# what the source marks with default visibility is seen from outside.
function(motley_module)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "NAME" "SOURCES;LINK")
  motley_check_arguments(motley_module)
  add_library(${arg_NAME} MODULE ${arg_SOURCES})
  target_link_libraries(${arg_NAME} PRIVATE motley_flags ${arg_LINK})
  target_include_directories(${arg_NAME} PRIVATE "${PROJECT_SOURCE_DIR}")
  set_target_properties(${arg_NAME} PROPERTIES
    PREFIX "" CXX_VISIBILITY_PRESET hidden CUDA_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
  add_dependencies(motley_programs ${arg_NAME})
  if(TARGET motley_suite AND arg_SOURCES MATCHES "[.]cu(;|$)" AND "gpu" MATCHES "${MOTLEY_SUITE}")
    add_dependencies(motley_suite ${arg_NAME})  # that it compiles is worth testing on a machine without a GPU
  endif()
endfunction()
