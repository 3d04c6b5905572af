# SQLite's own test programs, by the rules that its authors' configure wrote, with shim.c and without their libtool.
include Makefile

objects = $(patsubst %.c,fixture/%.o,$(notdir $(TESTFIXTURE_SRC))) fixture/shim.o
mptest_objects = fixture/plain/mptest.o fixture/plain/sqlite3.o fixture/plain/shim.o
VPATH = $(sort $(dir $(TESTFIXTURE_SRC))) $(TOP)/mptest $(SHIM)
OPTIONS = -DSQLITE_EXTRA_INIT=breakeven_suite_init

fixture/testfixture: $(objects)
	$(CC) -rdynamic -o $@ $(objects) $(LIBTCL) $(TLIBS)

fixture/mptest: $(mptest_objects)
	$(CC) -rdynamic -o $@ $(mptest_objects) $(TLIBS)

# What the others include comes out of sqlite3.c's rule.
fixture/%.o: %.c sqlite3.c
	@mkdir -p fixture
	$(TCC) $(OPTIONS) -DSQLITE_NO_SYNC=1 $(TEMP_STORE) $(TESTFIXTURE_FLAGS) -UTCLSH_INIT_PROC \
		-DTCLSH_INIT_PROC=breakeven_suite_tcl -c -o $@ $<

fixture/plain/%.o: %.c sqlite3.c
	@mkdir -p fixture/plain
	$(TCC) $(OPTIONS) -c -o $@ $<
