# Writes FILE with the commit of the tree SOURCE, if it is not there already.
set(commit unknown)
find_program(GIT git)
if(GIT)
  execute_process(COMMAND ${GIT} -C ${SOURCE} rev-parse --short=12 HEAD
    OUTPUT_VARIABLE head OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
  if(NOT failed)
    set(commit ${head})
    execute_process(COMMAND ${GIT} -C ${SOURCE} diff --quiet HEAD -- ERROR_QUIET RESULT_VARIABLE changed)
    if(changed)
      string(APPEND commit "-dirty")
    endif()
  endif()
endif()
file(CONFIGURE OUTPUT ${FILE} CONTENT [[
#include "core/base/build_info.h"

namespace hone {

const char* build_commit() { return "@commit@"; }

}  // namespace hone
]] @ONLY)
