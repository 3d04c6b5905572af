/* What SQLite's own test program has here that its authors' has not.
**
** It loads the extension as any host would, which makes it the default VFS, before the first test runs, and again
** whenever a test has shut SQLite down.
**
** BREAKEVEN_SUITE_EXTENSION   the extension; without it the program is as its authors made it
** BREAKEVEN_SUITE_PARAMETER   key=value, a parameter of the URI that every database is opened with
**
** Many tests look into the file of a database from outside, or write to it. What they ask for, by `file size`,
** `hexio_read` and `hexio_write`, they get of a compressed one as it is to SQLite.
*/
#include "sqlite3.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef SQLITE_TEST
#include <tcl.h>
#endif

static sqlite3_vfs *loaded = 0;
static sqlite3_vfs with_parameter;

/* Returns a copy of a database's name with one parameter more, laid out as sqlite3_create_filename does. A VFS may keep
** the name for as long as the file is open, and nobody is told when that ends: the copy stays. */
static const char *named(const char *name, const char *parameter) {
  const char *equals = strchr(parameter, '=');
  const char *end = name + strlen(name) + 1;
  while (*end) end += strlen(end) + 1;
  char *copy = calloc(1, 4 + (end - name) + strlen(parameter) + 2 + 2 * strlen(name) + 32);
  char *at = copy + 4;
  memcpy(at, name, end - name);
  at += end - name;
  memcpy(at, parameter, strlen(parameter));
  at[equals - parameter] = 0;
  at += strlen(parameter) + 2;
  at += sprintf(at, "%s-journal", name) + 1;
  sprintf(at, "%s-wal", name);
  return copy + 4;
}

static int open_with_parameter(sqlite3_vfs *vfs, const char *name, sqlite3_file *file, int flags, int *out) {
  if (name && flags & SQLITE_OPEN_MAIN_DB) name = named(name, getenv("BREAKEVEN_SUITE_PARAMETER"));
  return loaded->xOpen(loaded, name, file, flags, out);
}

static int load(const char *extension) {
  sqlite3 *db = 0;
  char *message = 0;
  int code = sqlite3_open(":memory:", &db);
  if (code == SQLITE_OK) code = sqlite3_enable_load_extension(db, 1);
  if (code == SQLITE_OK) code = sqlite3_load_extension(db, extension, "sqlite3_breakeven_default_init", &message);
  if (message) fprintf(stderr, "%s\n", message);
  sqlite3_free(message);
  sqlite3_close(db);
  return code;
}

int breakeven_suite_init(const char *unused) {
  const char *extension = getenv("BREAKEVEN_SUITE_EXTENSION");
  if (!extension) return SQLITE_OK;
  if (!loaded) {
    int code = load(extension);
    if (code != SQLITE_OK) return code;
    loaded = sqlite3_vfs_find("breakeven");
    with_parameter = *loaded;
    with_parameter.zName = "breakeven-suite";
    with_parameter.xOpen = open_with_parameter;
  }
  return sqlite3_vfs_register(getenv("BREAKEVEN_SUITE_PARAMETER") ? &with_parameter : loaded, 1);
}

#ifdef SQLITE_TEST
/* Opens a compressed database beside SQLite; null for any other file. */
static sqlite3_file *open_compressed(const char *name, int flags) {
  char *path, first[8] = {0};
  sqlite3_file *file;
  FILE *stream = loaded ? fopen(name, "rb") : 0;
  if (!stream) return 0;
  if (fread(first, 1, 8, stream) != 8 || memcmp(first, "\x89" "BKVN\r\n\x1a", 8)) {
    fclose(stream);
    return 0;
  }
  fclose(stream);
  path = calloc(1, 4 + loaded->mxPathname + 8);
  file = calloc(1, loaded->szOsFile);
  if (loaded->xFullPathname(loaded, name, loaded->mxPathname, path + 4) != SQLITE_OK
   || loaded->xOpen(loaded, path + 4, file, flags | SQLITE_OPEN_MAIN_DB, 0) != SQLITE_OK) {
    free(file);
    file = 0;
  }
  free(path);
  return file;
}

static void close_compressed(sqlite3_file *file) {
  file->pMethods->xClose(file);
  free(file);
}

static int logical_size(void *data, Tcl_Interp *tcl, int count, Tcl_Obj *const words[]) {
  sqlite3_int64 size = -1;
  sqlite3_file *file = count == 2 ? open_compressed(Tcl_GetString(words[1]), SQLITE_OPEN_READONLY) : 0;
  if (!file) return ((Tcl_CmdInfo*)data)->objProc(((Tcl_CmdInfo*)data)->objClientData, tcl, count, words);
  file->pMethods->xFileSize(file, &size);
  close_compressed(file);
  Tcl_SetObjResult(tcl, Tcl_NewWideIntObj(size));
  return TCL_OK;
}

static int logical_read(void *data, Tcl_Interp *tcl, int count, Tcl_Obj *const words[]) {
  int offset, bytes, i;
  sqlite3_int64 size = 0;
  unsigned char *target;
  Tcl_Obj *text;
  sqlite3_file *file = count == 4 ? open_compressed(Tcl_GetString(words[1]), SQLITE_OPEN_READONLY) : 0;
  if (!file) return ((Tcl_CmdInfo*)data)->objProc(((Tcl_CmdInfo*)data)->objClientData, tcl, count, words);
  if (Tcl_GetIntFromObj(tcl, words[2], &offset) || Tcl_GetIntFromObj(tcl, words[3], &bytes)) return TCL_ERROR;
  file->pMethods->xFileSize(file, &size);
  if (bytes > size - offset) bytes = size > offset ? size - offset : 0;
  target = calloc(1, bytes + 1);
  file->pMethods->xRead(file, target, bytes, offset);
  text = Tcl_NewStringObj("", 0);
  for (i = 0; i < bytes; i++) Tcl_AppendPrintfToObj(text, "%02X", target[i]);
  Tcl_SetObjResult(tcl, text);
  free(target);
  close_compressed(file);
  return TCL_OK;
}

static int logical_write(void *data, Tcl_Interp *tcl, int count, Tcl_Obj *const words[]) {
  int offset, bytes = 0, code, length, high = -1, digit;
  const char *hex;
  unsigned char *source;
  sqlite3_file *file = count == 4 ? open_compressed(Tcl_GetString(words[1]), SQLITE_OPEN_READWRITE) : 0;
  if (!file) return ((Tcl_CmdInfo*)data)->objProc(((Tcl_CmdInfo*)data)->objClientData, tcl, count, words);
  if (Tcl_GetIntFromObj(tcl, words[2], &offset)) return TCL_ERROR;
  hex = Tcl_GetStringFromObj(words[3], &length);
  source = calloc(1, length / 2 + 1);
  for (; *hex; hex++) {
    const char *found = strchr("0123456789ABCDEFabcdef", *hex);
    if (!found) continue;
    digit = found - "0123456789ABCDEFabcdef";
    if (digit > 15) digit -= 6;
    if (high < 0) { high = digit; continue; }
    source[bytes++] = high << 4 | digit;
    high = -1;
  }
  code = file->pMethods->xLock(file, SQLITE_LOCK_SHARED);
  if (code == SQLITE_OK) code = file->pMethods->xLock(file, SQLITE_LOCK_RESERVED);
  if (code == SQLITE_OK) code = file->pMethods->xLock(file, SQLITE_LOCK_EXCLUSIVE);
  if (code == SQLITE_OK) code = file->pMethods->xWrite(file, source, bytes, offset);
  if (code == SQLITE_OK) code = file->pMethods->xFileControl(file, SQLITE_FCNTL_SYNC, 0);
  if (code == SQLITE_OK) code = file->pMethods->xFileControl(file, SQLITE_FCNTL_COMMIT_PHASETWO, 0);
  file->pMethods->xUnlock(file, SQLITE_LOCK_NONE);
  close_compressed(file);
  free(source);
  if (code != SQLITE_OK) {
    Tcl_SetObjResult(tcl, Tcl_ObjPrintf("the compressed database is not written: %d", code));
    return TCL_ERROR;
  }
  Tcl_SetObjResult(tcl, Tcl_NewIntObj(bytes));
  return TCL_OK;
}

/* Puts a command before the one of this name, which it is given. */
static void put_before(Tcl_Interp *tcl, const char *name, Tcl_ObjCmdProc *command) {
  Tcl_CmdInfo *before = calloc(1, sizeof *before);
  Tcl_GetCommandInfo(tcl, name, before);
  Tcl_CreateObjCommand(tcl, name, command, before, 0);
}

const char *breakeven_suite_tcl(Tcl_Interp *tcl) {
  extern const char *sqlite3TestInit(Tcl_Interp*);
  const char *script = sqlite3TestInit(tcl);
  put_before(tcl, "hexio_read", logical_read);
  put_before(tcl, "hexio_write", logical_write);
  put_before(tcl, "::tcl::file::size", logical_size);
  return script;
}
#endif
