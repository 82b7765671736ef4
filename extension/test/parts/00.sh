: # parts of the test, run one after the other in one shell
