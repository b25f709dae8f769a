# Tests: one ctest entry for each binary or script, with labels for its tier.

if(NOT MOTLEY_BUILD_TESTS)
  return()
endif()
enable_testing()
# The system's interpreter: Debian's python3-torch, the oracle, is seen by no other.
find_program(MOTLEY_PYTHON python3 PATHS /usr/bin NO_DEFAULT_PATH)
find_program(MOTLEY_PYTHON python3 REQUIRED)
mark_as_advanced(MOTLEY_PYTHON)

# The labels of HACKING.md. Besides its tier `threads` marks what the thread sanitizer should see, `optimised` what of the
# tiers that run under sanitizers is to run as users have it, too.
set(MOTLEY_TEST_LABELS lint unit contract sim e2e fault gpu slow bench threads optimised)

# What of this build tests/run.sh builds and runs: the tests with such a label get the label `suite`, and the target
# motley_suite is what they need. gpu tests are left to a build that asks for them, benchmarks to tests/bench/run.sh.
set(MOTLEY_SUITE "^(lint|unit|contract|sim|e2e|fault|slow)$" CACHE STRING "Labels of the tests that tests/run.sh runs in this build")
set(MOTLEY_TEST_PREFIX "" CACHE STRING "Put before the names of tests, to tell one build from another")
add_custom_target(motley_suite)

# One file says how Open MPI is run in tests; shells source it, ctest gets it from here.
set(MOTLEY_MPI_TEST_ENVIRONMENT)
file(STRINGS "${PROJECT_SOURCE_DIR}/tests/support/mpi_environment.sh" motley_exports REGEX "^export ")
foreach(line IN LISTS motley_exports)
  string(REGEX REPLACE "^export " "" line "${line}")
  list(APPEND MOTLEY_MPI_TEST_ENVIRONMENT "${line}")
endforeach()
set_property(DIRECTORY "${PROJECT_SOURCE_DIR}" APPEND PROPERTY
  CMAKE_CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/support/mpi_environment.sh")

# Sets `result` to ON if a test with these labels belongs to the suite of this build.
function(motley_in_suite result)
  set(${result} OFF PARENT_SCOPE)
  if("bench" IN_LIST ARGN OR ("gpu" IN_LIST ARGN AND NOT "gpu" MATCHES "${MOTLEY_SUITE}"))
    return()
  endif()
  foreach(label IN LISTS ARGN)
    if(label MATCHES "${MOTLEY_SUITE}")
      set(${result} ON PARENT_SCOPE)
    endif()
  endforeach()
endfunction()

function(motley_check_labels name)
  if(NOT ARGN)
    message(FATAL_ERROR "test ${name}: LABELS is missing")
  endif()
  foreach(label IN LISTS ARGN)
    if(NOT label IN_LIST MOTLEY_TEST_LABELS)
      message(FATAL_ERROR "test ${name}: unknown label '${label}'; known: ${MOTLEY_TEST_LABELS}")
    endif()
  endforeach()
endfunction()

# motley_add_test(name [MPI] [SERIAL] COMMAND ... LABELS ... [NEEDS targets] [TIMEOUT s] [PROCESSORS n] [ENVIRONMENT K=V ...]
#                 [SANITIZED_ENVIRONMENT K=V ...])
# SANITIZED_ENVIRONMENT is added under sanitizers, where all takes several times as long: GTEST_FILTER or RC_PARAMS leave
# out what another case shows as well.
function(motley_add_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "MPI;SERIAL" "TIMEOUT;PROCESSORS"
    "COMMAND;LABELS;NEEDS;ENVIRONMENT;SANITIZED_ENVIRONMENT")
  motley_check_labels(${name} ${arg_LABELS})
  motley_in_suite(in_suite ${arg_LABELS})
  if(in_suite)
    list(APPEND arg_LABELS suite)
    if(arg_NEEDS)
      add_dependencies(motley_suite ${arg_NEEDS})
    endif()
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  if(MOTLEY_SANITIZE)
    math(EXPR arg_TIMEOUT "${arg_TIMEOUT} * 4")
    list(APPEND arg_ENVIRONMENT ${arg_SANITIZED_ENVIRONMENT})
  endif()
  if(NOT arg_PROCESSORS)
    set(arg_PROCESSORS 1)
  endif()
  set(asan detect_stack_use_after_return=1)
  if(arg_MPI)
    set(asan detect_leaks=0)  # the MPI library leaks by design
  endif()
  set(environment
    ${MOTLEY_MPI_TEST_ENVIRONMENT}
    "ASAN_OPTIONS=${asan}"
    UBSAN_OPTIONS=print_stacktrace=1
    TSAN_OPTIONS=ignore_noninstrumented_modules=1:halt_on_error=1
    "MOTLEY_TEST_BIN_DIR=${CMAKE_RUNTIME_OUTPUT_DIRECTORY}"
    ${arg_ENVIRONMENT})
  set(name "${MOTLEY_TEST_PREFIX}${name}")
  add_test(NAME ${name} COMMAND ${arg_COMMAND} WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}")
  set_tests_properties(${name} PROPERTIES
    LABELS "${arg_LABELS}" TIMEOUT ${arg_TIMEOUT} PROCESSORS ${arg_PROCESSORS} RUN_SERIAL ${arg_SERIAL}
    SKIP_RETURN_CODE 77 ENVIRONMENT "${environment}")
endfunction()

# motley_test(NAME n LABELS unit ... SOURCES a_test.cc ... [LINK libs] [NEEDS targets] [MPI_RANKS n] [SERIAL] [TIMEOUT s]
#             [PROCESSORS n] [ENVIRONMENT K=V ...] [SANITIZED_ENVIRONMENT K=V ...])
# A GoogleTest binary with GMock, RapidCheck and tests/support; one ctest entry. NEEDS names programs or modules that it
# starts or opens. With MPI_RANKS it runs under mpirun; where MPI is missing the entry is skipped, or fails if
# MOTLEY_REQUIRE names mpi. SERIAL: nothing else runs meanwhile (it measures time).
function(motley_test)
  cmake_parse_arguments(PARSE_ARGV 0 arg "SERIAL" "NAME;MPI_RANKS;TIMEOUT;PROCESSORS"
    "LABELS;SOURCES;LINK;NEEDS;ENVIRONMENT;SANITIZED_ENVIRONMENT")
  motley_check_arguments(motley_test)
  set(options LABELS ${arg_LABELS} TIMEOUT ${arg_TIMEOUT} ENVIRONMENT ${arg_ENVIRONMENT}
    SANITIZED_ENVIRONMENT ${arg_SANITIZED_ENVIRONMENT})
  if(arg_SERIAL)
    list(APPEND options SERIAL)
  endif()
  if(arg_MPI_RANKS AND NOT MOTLEY_HAVE_MPI)
    motley_add_test(${arg_NAME} COMMAND bash tests/support/missing_capability.sh mpi "built without MPI" ${options})
    return()
  endif()

  add_executable(${arg_NAME} ${arg_SOURCES})
  target_link_libraries(${arg_NAME} PRIVATE motley_flags ${arg_LINK} motley_test_support ${CMAKE_DL_LIBS})
  set_target_properties(${arg_NAME} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin/tests")
  if(arg_NEEDS)
    add_dependencies(${arg_NAME} ${arg_NEEDS})
  endif()
  if(arg_MPI_RANKS)
    set(command "${MPIEXEC_EXECUTABLE}" --bind-to none ${MPIEXEC_NUMPROC_FLAG} ${arg_MPI_RANKS} "$<TARGET_FILE:${arg_NAME}>")
    motley_add_test(${arg_NAME} MPI COMMAND ${command} NEEDS ${arg_NAME} PROCESSORS ${arg_MPI_RANKS} ${options})
  else()
    motley_add_test(${arg_NAME} COMMAND ${arg_NAME} NEEDS ${arg_NAME} PROCESSORS ${arg_PROCESSORS} ${options})
  endif()
endfunction()

# motley_script_test(NAME n LABELS e2e ... COMMAND bash tests/e2e/x.sh ... [NEEDS targets] [SERIAL] [TIMEOUT s] [PROCESSORS n]
#                    [ENVIRONMENT K=V ...])
# Any command, run in the root of the repository ("${MOTLEY_PYTHON}" for Python). It finds the programs in
# $MOTLEY_TEST_BIN_DIR and exits 77 to skip, best through tests/support/missing_capability.sh.
function(motley_script_test)
  cmake_parse_arguments(PARSE_ARGV 0 arg "SERIAL" "NAME;TIMEOUT;PROCESSORS" "LABELS;COMMAND;NEEDS;ENVIRONMENT")
  motley_check_arguments(motley_script_test)
  set(options LABELS ${arg_LABELS} TIMEOUT ${arg_TIMEOUT} PROCESSORS ${arg_PROCESSORS} ENVIRONMENT ${arg_ENVIRONMENT})
  if(arg_SERIAL)
    list(APPEND options SERIAL)
  endif()
  motley_add_test(${arg_NAME} MPI COMMAND ${arg_COMMAND} NEEDS motley_programs ${arg_NEEDS} ${options})
endfunction()
