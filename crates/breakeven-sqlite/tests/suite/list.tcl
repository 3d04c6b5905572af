# Prints the files of one of the suites that SQLite's permutations.test defines: list.tcl FOLDER-OF-TESTS SUITE.
foreach {folder suite} $argv break
set argv {}
set argv0 $folder/list.tcl
source $folder/permutations.test
array set options $testspec($suite)
puts [join $options(-files) \n]
exit
