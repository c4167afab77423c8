# What `cmake --install` copies, and the packages of cpack (./dev package): a .deb and a tarball that may be unpacked
# anywhere. Both run without a build on Debian 12, Ubuntu 22.04 and later: the libraries that the program links travel
# in lib/hone, where its rpath finds them. glibc and libstdc++ are the system's; cmake/package_files.cmake checks that
# no file needs newer ones. libstdc++ is not taken along because a reward plug-in may need a newer one.
include(GNUInstallDirs)

# RPATH, not RUNPATH: libraries in lib/hone find each other by it too.
set_target_properties(hone PROPERTIES INSTALL_RPATH "$ORIGIN/../lib/hone")
target_link_options(hone PRIVATE LINKER:--disable-new-dtags)
install(TARGETS hone RUNTIME_DEPENDENCY_SET hone_libraries)
install(DIRECTORY configs examples DESTINATION ${CMAKE_INSTALL_DATADIR}/hone)
install(FILES rewards/plugins/hone_reward.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/hone)
install(FILES README.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR})

# Man pages and shell completion, which the installed program prints.
set(names "set(HONE_PREFIX \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}\")
set(HONE_BIN \"\${HONE_PREFIX}/${CMAKE_INSTALL_BINDIR}/hone\")
set(HONE_MAN \"${CMAKE_INSTALL_MANDIR}/man1\")
set(HONE_DATA \"${CMAKE_INSTALL_DATADIR}\")
set(HONE_LICENSES \"\${HONE_PREFIX}/${CMAKE_INSTALL_DOCDIR}/licenses\")
set(HONE_LIBRARIES \"\${HONE_PREFIX}/lib/hone\")
set(HONE_SOURCE \"${CMAKE_SOURCE_DIR}\")
set(HONE_CUDA_ROOT \"${CUDAToolkit_TARGET_DIR}\")")
install(CODE "${names}")
install(SCRIPT cmake/install_texts.cmake)

# Component of packages alone: the libraries, their licenses, and the check of versions.
install(RUNTIME_DEPENDENCY_SET hone_libraries
  PRE_EXCLUDE_REGEXES "^lib(c|m|dl|rt|pthread|stdc\\+\\+|gcc_s)\\.so" "^ld-linux"
  LIBRARY DESTINATION lib/hone COMPONENT libraries EXCLUDE_FROM_ALL)
install(CODE "${names}" COMPONENT libraries EXCLUDE_FROM_ALL)
install(SCRIPT cmake/package_files.cmake COMPONENT libraries EXCLUDE_FROM_ALL)

set(CPACK_PACKAGE_NAME hone)
set(CPACK_DEBIAN_PACKAGE_CONFLICTS hone-cuda)
set(CPACK_DEBIAN_PACKAGE_REPLACES hone-cuda)
if(HONE_CUDA)
  set(CPACK_PACKAGE_NAME hone-cuda)
  set(CPACK_DEBIAN_PACKAGE_CONFLICTS hone)
  set(CPACK_DEBIAN_PACKAGE_REPLACES hone)
  set(CPACK_DEBIAN_PACKAGE_PROVIDES hone)
  # Never a dependency: the program starts without them, and says what it lacks.
  set(CPACK_DEBIAN_PACKAGE_SUGGESTS
    "libcublas-${CUDAToolkit_VERSION_MAJOR}-${CUDAToolkit_VERSION_MINOR}, libnccl2")
endif()
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_VENDOR "hone")
# dpkg wants "name <address>". hone has no mailing list: packages that are given to others name who made them.
set(HONE_PACKAGE_CONTACT "hone developers <hone@localhost>" CACHE STRING "Maintainer of the packages: NAME <ADDRESS>")
set(CPACK_PACKAGE_CONTACT "${HONE_PACKAGE_CONTACT}")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "pretrain, post-train, serve and evaluate language models with one program")
set(CPACK_GENERATOR TGZ DEB)
set(CPACK_PACKAGE_DIRECTORY ${CMAKE_BINARY_DIR}/package)
set(CPACK_PACKAGE_FILE_NAME ${CPACK_PACKAGE_NAME}-${PROJECT_VERSION}-linux-${CMAKE_SYSTEM_PROCESSOR})
set(CPACK_INSTALL_CMAKE_PROJECTS "${CMAKE_BINARY_DIR};hone;ALL;/;${CMAKE_BINARY_DIR};hone;libraries;/")
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_DEPENDS "libc6 (>= 2.34), libstdc++6 (>= 12), libgcc-s1")
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "ca-certificates, python3")
include(CPack)
