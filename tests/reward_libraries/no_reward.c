/* A shared library that is no reward. */
int nothing_to_see(void) { return 0; }
