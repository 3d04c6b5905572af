//! The VFS: it opens a file that is a compressed database, or is to be one. Everything else is left to the VFS that was
//! there before, which then serves the file without us.
//!
//! That VFS opens a database first, and only once. The first bytes of the file give its kind, and are read through that
//! handle. A plain one keeps the handle. To open and close a file of our own would drop the locks that other
//! connections of the process have on it ([`BaseFile`]).
//!
//! The table of SQLite's functions belongs to the registration, because two SQLite libraries in one process may both
//! have loaded the extension. The process shares only the list of its open databases.
//!
//! `unsafe` here: SQLite calls by pointers, and the calls that are passed on are pointers too.
#![allow(unsafe_code)]

use std::collections::HashMap;
use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use breakeven::codec::Method;
use breakeven::error::{Error, Result};
use breakeven::pages::{Connection, FileKind, LockLevel, PageOptions, PageStore, is_part_journal};
use breakeven::quoted::quoted;
use breakeven::storage::{FileSystem, RealStorage, Storage};

use crate::base::BaseFile;
use crate::database::{self, Database, code_of};
use crate::ffi::{self, Api, Code, File, Vfs};
use crate::fork;
use crate::journal::Journal;
use crate::memory;
use crate::refusals;
use crate::undecided::{self, Table, Undecided};

const NAME: &CStr = c"breakeven";
/// SQLite's suffixes of a database's name for its journals.
const SUFFIXES: [&str; 2] = ["-journal", "-wal"];

/// The state of one registration with one SQLite library.
struct Registration {
    api: Api,
    /// The VFS that was the default.
    base: *mut Vfs,
    /// The methods for files of a kind that is not known yet.
    undecided: Table,
}

/// Adds the VFS to a SQLite library, once.
pub fn register(api: Api, is_default: bool) -> Code {
    fork::watch();
    // SAFETY: a C string.
    let own = unsafe { api.find_vfs(NAME.as_ptr()) };
    if !own.is_null() {
        // SAFETY: it was registered here before, and lives for ever.
        return unsafe { api.register_vfs(own, is_default) };
    }
    // SAFETY: null asks for the default.
    let base = unsafe { api.find_vfs(std::ptr::null()) };
    if base.is_null() {
        return ffi::ERROR;
    }
    // SAFETY: SQLite's own VFS, which lives as long as the library.
    let base_vfs = unsafe { *base };
    let registration = Box::leak(Box::new(Registration {
        api,
        base,
        undecided: Table::new(base_vfs.file_bytes),
    }));
    let file_bytes = registration.undecided.file_bytes();
    let vfs = Box::leak(Box::new(Vfs {
        version: base_vfs.version.min(2),
        file_bytes: file_bytes.max(database::FILE_BYTES),
        next: null_mut(),
        name: NAME.as_ptr(),
        data: std::ptr::from_mut(registration).cast(),
        open,
        delete,
        access,
        full_pathname,
        dl_open,
        dl_error,
        dl_symbol,
        dl_close,
        randomness,
        sleep,
        current_time,
        get_last_error,
        current_time_ms,
        ..base_vfs
    }));
    // SAFETY: it was leaked just now.
    unsafe { api.register_vfs(vfs, is_default) }
}

/// The databases that this process has open, by path.
static OPEN: Mutex<Option<HashMap<PathBuf, OpenPath>>> = Mutex::new(None);

/// The shared state of this process's connections to a path.
#[derive(Default)]
struct OpenPath {
    connections: usize,
    /// Whether SQLite found a journal there since a connection looked after it.
    has_journal: Arc<AtomicBool>,
}

/// Their files, which connections share. The key is the device, the inode, whether it is only read, and the process,
/// since a child shares none of its parent's.
type Stores = HashMap<(u64, u64, bool, u32), Weak<PageStore>>;
static STORES: Mutex<Option<Stores>> = Mutex::new(None);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Says that a database is open under a path, for as long as it lives.
pub struct Opened {
    path: PathBuf,
    has_journal: Arc<AtomicBool>,
}

impl Opened {
    /// Says so from now on.
    pub fn new(path: &Path) -> Opened {
        let mut open = lock(&OPEN);
        let open = open.get_or_insert_default().entry(path.into()).or_default();
        open.connections += 1;
        Opened {
            path: path.into(),
            has_journal: Arc::clone(&open.has_journal),
        }
    }

    /// Returns the path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns whether SQLite found a journal beside the database since this was asked last.
    pub fn take_journal(&self) -> bool {
        // Most often there is none, and a load costs others nothing.
        self.has_journal.load(Ordering::Relaxed) && self.has_journal.swap(false, Ordering::Relaxed)
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        let mut open = lock(&OPEN);
        let open = open.get_or_insert_default();
        if let Some(known) = open.get_mut(&self.path) {
            known.connections -= 1;
            if known.connections == 0 {
                open.remove(&self.path);
            }
        }
    }
}

/// Returns whether a name is that of a journal of a compressed database that is open here.
fn is_own_journal(name: &Path) -> bool {
    database_of(name).is_some_and(is_open)
}

/// Returns the database whose journal would have a name.
fn database_of(name: &Path) -> Option<&Path> {
    let name = name.as_os_str().as_bytes();
    let stripped = |suffix: &&str| name.strip_suffix(suffix.as_bytes());
    let database = SUFFIXES.iter().find_map(stripped);
    database.map(|database| Path::new(OsStr::from_bytes(database)))
}

/// Notes that a journal of a database that is open here lies beside it.
fn note_journal(name: &Path) {
    let open = lock(&OPEN);
    let known = database_of(name).and_then(|database| open.as_ref()?.get(database));
    if let Some(known) = known {
        known.has_journal.store(true, Ordering::Relaxed);
    }
}

/// Returns whether a compressed database is open here under a path.
fn is_open(path: &Path) -> bool {
    let open = lock(&OPEN);
    (open.as_ref()).is_some_and(|open| open.contains_key(path))
}

/// # Safety
/// `name` is null or a C string that outlives the result.
unsafe fn path_of<'a>(name: *const c_char) -> Option<&'a Path> {
    if name.is_null() {
        return None;
    }
    // SAFETY: as the caller promises.
    let name = unsafe { CStr::from_ptr(name) };
    Some(Path::new(OsStr::from_bytes(name.to_bytes())))
}

unsafe extern "C" fn open(
    vfs: *mut Vfs,
    name: *const c_char,
    file: *mut File,
    flags: c_int,
    out_flags: *mut c_int,
) -> Code {
    // SAFETY: SQLite hands the VFS that was registered, with the data given then, which lives for ever.
    let (registration, path): (&'static Registration, _) =
        unsafe { (&*(*vfs).data.cast::<Registration>(), path_of(name)) };
    // SAFETY: as many bytes as asked for at registration; null means that there is nothing to close.
    unsafe { (*file).methods = std::ptr::null() };
    let is_own = catch_unwind(|| path.is_some_and(is_own_journal)).unwrap_or(false);
    if flags & ffi::OPEN_MAIN_JOURNAL != 0 && is_own {
        let folder = path.map_or(Path::new("."), folder_of);
        // SAFETY: the file is at least as long as was asked for.
        unsafe { database::open_journal(file, Journal::new(folder)) };
        return ffi::OK;
    }
    let is_database = flags & ffi::OPEN_MAIN_DB != 0;
    // Before anything is made under the name.
    let asked = match path {
        // SAFETY: the name that SQLite handed to this call for a database.
        Some(path) if is_database => match unsafe { asked(registration.api, name, path) } {
            Ok(asked) => asked,
            Err(code) => return code,
        },
        _ => Asked::default(),
    };
    let mut opened_flags = flags;
    // SAFETY: the arguments are SQLite's own, for a VFS of its own, and a place for its answer.
    let code = unsafe {
        ((*registration.base).open)(registration.base, name, file, flags, &raw mut opened_flags)
    };
    let is_only_read = flags & ffi::OPEN_READWRITE != 0 && opened_flags & ffi::OPEN_READONLY != 0;
    if is_database && (code != ffi::OK || is_only_read) {
        // SAFETY: as above.
        unsafe { keep_system_refusal(registration.base, path, is_only_read) };
    }
    let code = match path {
        Some(path) if is_database && code == ffi::OK => {
            // SAFETY: the VFS before opened it just now, and SQLite uses it by one thread at a time.
            let base = unsafe { BaseFile::new(file, (*file).methods) };
            let flags = &mut opened_flags;
            let taken = catch_unwind(AssertUnwindSafe(|| {
                // SAFETY: as above.
                unsafe { take(registration, file, base, path, asked, flags) }
            }));
            let code = taken.unwrap_or(ffi::IOERR);
            // SAFETY: as above; its methods close a file of ours and one of the other VFS alike.
            unsafe {
                if code != ffi::OK && !(*file).methods.is_null() {
                    ((*(*file).methods).close)(file);
                    (*file).methods = std::ptr::null();
                }
            }
            code
        }
        _ => code,
    };
    if !out_flags.is_null() {
        // SAFETY: SQLite's own, and not null.
        unsafe { *out_flags = opened_flags };
    }
    code
}

/// Reads the parameters of a name.
///
/// # Safety
/// `name` is the name that SQLite handed to `xOpen` for a database.
unsafe fn asked(api: Api, name: *const c_char, path: &Path) -> std::result::Result<Asked, Code> {
    // SAFETY: as the caller promises.
    let parameter = |key: &CStr| unsafe {
        let value = api.uri_parameter(name, key.as_ptr());
        let value = (!value.is_null()).then(|| CStr::from_ptr(value));
        value.map(|value| value.to_string_lossy().into_owned())
    };
    match catch_unwind(AssertUnwindSafe(|| Asked::of(&parameter))) {
        Ok(asked) => asked.map_err(|error| refuse(api, path, &error)),
        Err(_) => Err(ffi::IOERR),
    }
}

/// Keeps why the VFS before did not open a file just now, or only to be read.
///
/// # Safety
/// `base` is that VFS.
unsafe fn keep_system_refusal(base: *mut Vfs, path: Option<&Path>, is_only_read: bool) {
    // SAFETY: as the caller promises; it writes nothing.
    let number = unsafe { ((*base).get_last_error)(base, 0, null_mut()) };
    let what = match is_only_read {
        true => "can only be read",
        false => "cannot be opened",
    };
    let path = quoted(path.unwrap_or(Path::new("")));
    let why = std::io::Error::from_raw_os_error(number);
    let keep = || refusals::keep(format!("{path}: {what}: {why}"));
    let _ = catch_unwind(AssertUnwindSafe(keep));
}

/// Takes a database that the VFS before has just opened, unless it is a plain one.
///
/// # Safety
/// `file` has the requested length, and `base` is the file of the VFS before.
unsafe fn take(
    registration: &'static Registration,
    file: *mut File,
    base: BaseFile,
    path: &Path,
    mut asked: Asked,
    flags: &mut c_int,
) -> Code {
    let api = registration.api;
    asked.options.is_read_only = *flags & ffi::OPEN_READONLY != 0;
    let kind = match base.kind() {
        Ok(kind) => kind,
        Err(code) => return code,
    };
    let mut work = || -> Result<Code> {
        match kind {
            FileKind::Compressed | FileKind::Empty if memory::is_short() => Ok(ffi::IOERR_NOMEM),
            FileKind::Compressed => {
                let database = open_compressed(api, path, asked)?;
                if database.is_read_only() {
                    *flags = (*flags & !0x7) | ffi::OPEN_READONLY;
                }
                base.close();
                // SAFETY: as the caller promises.
                unsafe { database::open(file, Box::new(database)) };
                Ok(ffi::OK)
            }
            FileKind::Empty if !asked.options.is_read_only && !asked.is_immutable => {
                if !asked.is_unlocked {
                    Named::new(path)?.system.check_network(path)?;
                }
                let undecided = Undecided::new(api, base, path, asked);
                // SAFETY: as the caller promises; the registration lives for ever.
                unsafe { undecided::open(file, &registration.undecided, Box::new(undecided)) };
                match asked.is_unlocked {
                    // SAFETY: as the caller promises.
                    true => Ok(unsafe { decide_at_once(file) }),
                    false => Ok(ffi::OK),
                }
            }
            FileKind::Plain | FileKind::Other | FileKind::Empty => {
                refuse_taken_place(path).map(|()| ffi::OK)
            }
        }
    };
    work().unwrap_or_else(|error| refuse(api, path, &error))
}

/// Says why a file is not opened.
fn refuse(api: Api, path: &Path, error: &Error) -> Code {
    let code = code_of(error, ffi::CANTOPEN);
    refusals::tell(api, code, path, error);
    code
}

/// Makes a database of an empty file for a host that is not going to lock it.
///
/// # Safety
/// `file` is open.
unsafe fn decide_at_once(file: *mut File) -> Code {
    for level in [LockLevel::Shared, LockLevel::Reserved] {
        // SAFETY: as the caller promises; the methods may change meanwhile.
        let code = unsafe { ((*(*file).methods).lock)(file, level as c_int) };
        if code != ffi::OK {
            return code;
        }
    }
    // SAFETY: as above.
    unsafe { ((*(*file).methods).unlock)(file, LockLevel::None as c_int) }
}

/// A TiB, so that no number that is a slip is taken for a memory.
const PAGE_CACHE_MIB_MAX: u64 = 1 << 20;

/// More than any machine encodes by.
const THREADS_MAX: usize = 64;
/// Of more processors than this the others are left to the host.
const USUAL_THREADS_MAX: usize = 4;

/// The parameters of a URI.
#[derive(Clone, Copy, Default)]
pub struct Asked {
    pub options: PageOptions,
    /// Whether commits are left to the system to write.
    pub is_lazy: bool,
    /// Whether SQLite is not going to lock.
    pub is_unlocked: bool,
    /// Whether nobody writes, as the host promises.
    is_immutable: bool,
    /// How many threads encode, if the URI gives it.
    threads: Option<usize>,
    /// Whether readers keep writers out.
    keeps_writers_out: bool,
}

impl Asked {
    /// Reads the parameters; the system is asked for nothing.
    fn of(parameter: &dyn Fn(&CStr) -> Option<String>) -> Result<Asked> {
        let mut options = PageOptions::default();
        if let Some(method) = parameter(c"codec") {
            options.method = Some(method.parse::<Method>()?);
            options.check()?;
        }
        if let Some(space_amp) = parameter(c"space_amp") {
            let number = space_amp.parse().ok();
            let in_range = |number: &f64| (1.0..=100.0).contains(number);
            options.space_amp = number.filter(in_range).ok_or_else(|| {
                Error::invalid(
                    "space_amp",
                    format!("'{space_amp}': a number from 1 to 100"),
                )
            })?;
        }
        if let Some(page_cache) = parameter(c"page_cache") {
            let number = page_cache.parse::<u64>().ok();
            let in_range = |number: &u64| *number <= PAGE_CACHE_MIB_MAX;
            let number = number.filter(in_range).ok_or_else(|| {
                let reason = format!("'{page_cache}': MiB, from 0 to {PAGE_CACHE_MIB_MAX}");
                Error::invalid("page_cache", reason)
            })?;
            options.cache_bytes = number << 20;
        }
        let threads = parameter(c"threads").map(|threads| {
            let number = threads.parse::<usize>().ok();
            let in_range = |number: &usize| (1..=THREADS_MAX).contains(number);
            number.filter(in_range).ok_or_else(|| {
                let reason = format!("'{threads}': a number from 1 to {THREADS_MAX}");
                Error::invalid("threads", reason)
            })
        });
        let is_lazy = match parameter(c"durability").as_deref() {
            None | Some("full") => false,
            Some("lazy") => true,
            Some(other) => {
                let reason = format!("'{other}': full or lazy");
                return Err(Error::invalid("durability", reason));
            }
        };
        let keeps_writers_out = match parameter(c"snapshot").as_deref() {
            None | Some("1") => false,
            Some("0") => true,
            Some(other) => return Err(Error::invalid("snapshot", format!("'{other}': 0 or 1"))),
        };
        // As SQLite reads a yes.
        let is_yes = |key| parameter(key).is_some_and(|value| is_yes(&value));
        let is_immutable = is_yes(c"immutable");
        Ok(Asked {
            options,
            is_lazy,
            is_unlocked: is_yes(c"nolock") || is_immutable,
            is_immutable,
            threads: threads.transpose()?,
            keeps_writers_out,
        })
    }

    /// Returns the options for opening a file, with the usual number of threads of this machine unless the URI gives
    /// one.
    fn page_options(&self) -> PageOptions {
        let usual = || {
            let processors = std::thread::available_parallelism().map_or(1, usize::from);
            processors.min(USUAL_THREADS_MAX)
        };
        PageOptions {
            threads: self.threads.unwrap_or_else(usual),
            ..self.options
        }
    }
}

/// Returns whether SQLite takes a parameter's value for a yes.
fn is_yes(value: &str) -> bool {
    let number: String = value.chars().take_while(char::is_ascii_digit).collect();
    let words = ["on", "yes", "true"];
    number.parse::<u64>().is_ok_and(|number| number > 0)
        || words.iter().any(|word| value.eq_ignore_ascii_case(word))
}

/// A file as the library names it: its folder, and its name there.
struct Named {
    storage: Arc<dyn Storage>,
    system: FileSystem,
    name: String,
}

impl Named {
    /// Names a file; its last part is no symbolic link.
    fn new(path: &Path) -> Result<Named> {
        let real = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
        let (storage, name) = RealStorage::of_file(real)?;
        Ok(Named {
            system: storage.system()?,
            name,
            storage: Arc::new(storage),
        })
    }
}

/// Returns the folder of a file.
fn folder_of(path: &Path) -> &Path {
    let folder = path.parent().filter(|it| !it.as_os_str().is_empty());
    folder.unwrap_or(Path::new("."))
}

/// Opens a compressed database.
pub fn open_compressed(api: Api, path: &Path, mut asked: Asked) -> Result<Database> {
    let named = Named::new(path)?;
    // A host that promises that nobody else is there needs no locks.
    if !asked.is_unlocked {
        named.system.check_network(path)?;
    }
    refuse_journals(path)?;
    if !asked.is_unlocked {
        named.system.check_locks(&*named.storage, &named.name)?;
    }
    let connect = |options| {
        let store = PageStore::new(Arc::clone(&named.storage), &named.name, options);
        connect(Arc::new(store))
    };
    let mut connection = match connect(asked.page_options()) {
        Err(Error::Io { source, .. }) if is_unwritable(&source) && !asked.options.is_read_only => {
            asked.options.is_read_only = true;
            connect(asked.page_options())?
        }
        other => other?,
    };
    if connection.kind()? != FileKind::Compressed {
        // A plain database was put in its place just now, and others may have locks on that: it stays open.
        std::mem::forget(connection);
        let reason = format!("{} is another file than it was", quoted(&path));
        return Err(Error::invalid("database", reason));
    }
    if asked.keeps_writers_out {
        connection.keep_writers_out();
    }
    Ok(Database::new(api, connection, Opened::new(path), &asked))
}

/// Makes a compressed database of an empty file, which belongs to SQLite's own VFS alone meanwhile. `None` if it is not
/// empty any more.
pub fn create(path: &Path, asked: Asked) -> Result<Option<PageStore>> {
    let named = Named::new(path)?;
    if !asked.is_unlocked {
        named.system.check_network(path)?;
    }
    refuse_journals(path)?;
    PageStore::create_in_place(named.storage, &named.name, asked.page_options())
}

/// Opens a connection to the file that [`create`] made, locked to read; `None` if that cannot be had now.
pub fn connect_made(
    api: Api,
    path: &Path,
    asked: Asked,
    made: PageStore,
) -> Result<Option<Database>> {
    let mut connection = connect(Arc::new(made))?;
    if asked.keeps_writers_out {
        connection.keep_writers_out();
    }
    if !connection.lock(LockLevel::Shared)? {
        return Ok(None);
    }
    if !asked.is_unlocked {
        let named = Named::new(path)?;
        named.system.check_locks(&*named.storage, &named.name)?;
    }
    let database = Database::new(api, connection, Opened::new(path), &asked);
    Ok(Some(database))
}

/// Opens a connection to the store that this process has of the file already, or to the one that is given.
fn connect(store: Arc<PageStore>) -> Result<Connection> {
    let connection = Connection::open(Arc::clone(&store))?;
    let identity = connection.status()?.identity;
    let (device, inode) = (identity.device, identity.inode);
    let key = (device, inode, store.options().is_read_only, fork::count());
    let mut stores = lock(&STORES);
    let stores = stores.get_or_insert_default();
    stores.retain(|_, store| store.strong_count() > 0);
    match stores.get(&key).and_then(Weak::upgrade) {
        // By its own handle: the name of the known one may lead elsewhere by now.
        Some(known) => Ok(connection.share(known)),
        None => {
            stores.insert(key, Arc::downgrade(&store));
            Ok(connection)
        }
    }
}

/// Refuses a file in the place of a compressed database that is still open under the path. Its journal would be taken
/// for that of the other, and it is not.
pub fn refuse_taken_place(path: &Path) -> Result<()> {
    match is_open(path) {
        true => {
            let reason = "it took the place of a compressed one that is still open";
            Err(Error::invalid("database", reason))
        }
        false => Ok(()),
    }
}

fn is_unwritable(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem};
    matches!(error.kind(), PermissionDenied | ReadOnlyFilesystem)
}

/// A compressed database has no journal beside it but that of its part of a transaction over several. Another belongs
/// to a plain database that had this name, and opening that one again would lose the contents of the journal.
fn refuse_journals(path: &Path) -> Result<()> {
    for suffix in SUFFIXES {
        let mut journal = path.as_os_str().to_owned();
        journal.push(suffix);
        let journal = Path::new(&journal);
        let is_there = std::fs::metadata(journal).is_ok_and(|found| found.len() > 0);
        if is_there && !is_part(journal) {
            let reason = format!("{} is there, of another database", quoted(&journal));
            return Err(Error::invalid("database", reason));
        }
    }
    Ok(())
}

/// Returns whether a file is a compressed database's own journal. SQLite locks no journal, so that closing it harms
/// nobody.
fn is_part(journal: &Path) -> bool {
    let mut first = [0; 16];
    let read = std::fs::File::open(journal).and_then(|mut file| file.read_exact(&mut first));
    read.is_ok() && is_part_journal(&first)
}

unsafe extern "C" fn delete(vfs: *mut Vfs, name: *const c_char, is_synced: c_int) -> Code {
    // SAFETY: SQLite's own arguments.
    let path = unsafe { path_of(name) };
    let is_own = catch_unwind(|| path.is_some_and(is_own_journal));
    match is_own {
        Ok(true) => ffi::OK,
        // SAFETY: as above, for the VFS before.
        _ => unsafe { (base(vfs).delete)(base(vfs), name, is_synced) },
    }
}

unsafe extern "C" fn access(
    vfs: *mut Vfs,
    name: *const c_char,
    flags: c_int,
    result: *mut c_int,
) -> Code {
    // SAFETY: SQLite's own arguments.
    let path = unsafe { path_of(name) };
    let is_own = catch_unwind(|| path.is_some_and(is_own_journal));
    // The journal of a part of a transaction over several files is there for SQLite's recovery of the others.
    let is_log = path.is_some_and(|path| path.as_os_str().as_bytes().ends_with(b"-wal"));
    if flags == ffi::ACCESS_EXISTS && is_log && is_own.unwrap_or(false) {
        // SAFETY: as above.
        unsafe { *result = 0 };
        return ffi::OK;
    }
    // SAFETY: as above, for the VFS before, which answers by a number.
    let (code, is_there) = unsafe {
        let code = (base(vfs).access)(base(vfs), name, flags, result);
        (code, code == ffi::OK && *result != 0)
    };
    // SQLite asks whenever it begins to read, and finds nothing to play back in it.
    if let (Some(path), true, ffi::ACCESS_EXISTS) = (path, is_there, flags) {
        let _ = catch_unwind(|| note_journal(path));
    }
    code
}

/// # Safety
/// `vfs` is the one that was registered.
unsafe fn base<'a>(vfs: *mut Vfs) -> &'a mut Vfs {
    // SAFETY: its data is a registration that lives for ever, and so does the VFS before.
    unsafe { &mut *(*(*vfs).data.cast::<Registration>()).base }
}

/// Answers the number of the system's last error, and writes why something was refused.
unsafe extern "C" fn get_last_error(vfs: *mut Vfs, bytes: c_int, target: *mut c_char) -> c_int {
    let last = catch_unwind(refusals::last).ok().flatten();
    if let (Some(sentence), 2.., false) = (last, bytes, target.is_null()) {
        let count = sentence.len().min(bytes as usize - 1);
        // SAFETY: SQLite lends as many bytes, and one for the end.
        unsafe {
            target.copy_from_nonoverlapping(sentence.as_ptr().cast(), count);
            target.add(count).write(0);
        }
    }
    // SAFETY: for the VFS before, which writes nothing.
    unsafe { (base(vfs).get_last_error)(base(vfs), 0, null_mut()) }
}

/// Passes a call on to the VFS that was there before.
macro_rules! pass {
    ($name:ident($($argument:ident: $type:ty),*) -> $result:ty) => {
        unsafe extern "C" fn $name(vfs: *mut Vfs, $($argument: $type),*) -> $result {
            // SAFETY: SQLite's own arguments, for a VFS of its own.
            unsafe { (base(vfs).$name)(base(vfs), $($argument),*) }
        }
    };
}

pass!(full_pathname(name: *const c_char, bytes: c_int, target: *mut c_char) -> Code);
pass!(dl_open(name: *const c_char) -> *mut c_void);
pass!(dl_error(bytes: c_int, target: *mut c_char) -> ());
pass!(dl_symbol(handle: *mut c_void, name: *const c_char) -> *mut c_void);
pass!(dl_close(handle: *mut c_void) -> ());
pass!(randomness(bytes: c_int, target: *mut c_char) -> c_int);
pass!(sleep(microseconds: c_int) -> c_int);
pass!(current_time(target: *mut f64) -> c_int);
pass!(current_time_ms(target: *mut i64) -> c_int);
