# Writes man pages and shell completion, which the installed program prints.
execute_process(COMMAND ${HONE_BIN} list man --out ${HONE_PREFIX}/${HONE_MAN} COMMAND_ERROR_IS_FATAL ANY)
function(install_completion shell file)
  execute_process(COMMAND ${HONE_BIN} completion ${shell} OUTPUT_VARIABLE text COMMAND_ERROR_IS_FATAL ANY)
  file(WRITE ${HONE_PREFIX}/${HONE_DATA}/${file} "${text}")
endfunction()
install_completion(bash bash-completion/completions/hone)
install_completion(zsh zsh/site-functions/_hone)
install_completion(fish fish/vendor_completions.d/hone.fish)
