//! The VFS: a file that is a compressed database, or is to be one, is opened here; everything else is handed
//! to the VFS that was there before, which then serves the file without us.
//!
//! The table of SQLite's functions belongs to the registration, because two SQLite libraries in one
//! process may both have loaded the extension. What the process shares is only which databases it has open.
//!
//! `unsafe` here: SQLite calls by pointers, and the calls that are passed on are pointers too.
#![allow(unsafe_code)]

use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::ptr::null_mut;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use breakeven::codec::Method;
use breakeven::error::{Error, Result};
use breakeven::pages::{Connection, FileKind, PageOptions, PageStore, file_kind};
use breakeven::storage::{OpenOptions, RealStorage, Storage};

use crate::database::{self, Database};
use crate::ffi::{self, Api, Code, File, Vfs};
use crate::fork;

const NAME: &CStr = c"breakeven";
/// What SQLite puts behind the name of a database to name its journals.
const SUFFIXES: [&str; 2] = ["-journal", "-wal"];

/// What belongs to one registration with one SQLite library.
struct Registration {
    api: Api,
    /// The VFS that was the default.
    base: *mut Vfs,
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
    let registration = Box::leak(Box::new(Registration { api, base }));
    let vfs = Box::leak(Box::new(Vfs {
        version: base_vfs.version.min(2),
        file_bytes: base_vfs.file_bytes.max(database::FILE_BYTES),
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

/// The databases that this process has open, by path: how many connections each has.
static OPEN: Mutex<Option<HashMap<PathBuf, usize>>> = Mutex::new(None);
/// Their files, which connections share: by device, inode, whether it is only read, and the process, since a child
/// shares none of its parent's.
type Stores = HashMap<(u64, u64, bool, u32), Weak<PageStore>>;
static STORES: Mutex<Option<Stores>> = Mutex::new(None);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Says that a database is open under a path, for as long as it lives.
pub struct Opened(PathBuf);

impl Opened {
    /// Says so from now on.
    pub fn new(path: &Path) -> Opened {
        let mut open = lock(&OPEN);
        *open.get_or_insert_default().entry(path.into()).or_default() += 1;
        Opened(path.into())
    }

    /// Returns the path.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        let mut open = lock(&OPEN);
        let open = open.get_or_insert_default();
        if let Some(count) = open.get_mut(&self.0) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.0);
            }
        }
    }
}

/// Returns whether a name is that of a journal of a compressed database that is open here.
fn is_own_journal(name: &Path) -> bool {
    let Some(text) = name.to_str() else {
        return false;
    };
    let database = SUFFIXES.iter().find_map(|suffix| text.strip_suffix(suffix));
    database.is_some_and(|database| is_open(Path::new(database)))
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
    name.to_str().ok().map(Path::new)
}

/// What to do with a file that SQLite wants to open.
enum Decision {
    /// It is not ours.
    Pass,
    Compressed(Box<Database>),
}

unsafe extern "C" fn open(
    vfs: *mut Vfs,
    name: *const c_char,
    file: *mut File,
    flags: c_int,
    out_flags: *mut c_int,
) -> Code {
    // SAFETY: SQLite hands the VFS that was registered, with the data given then.
    let (registration, path) = unsafe { (&*(*vfs).data.cast::<Registration>(), path_of(name)) };
    // SAFETY: as many bytes as asked for at registration; null means that there is nothing to close.
    unsafe { (*file).methods = std::ptr::null() };
    let decide = || match path {
        Some(path) if flags & ffi::OPEN_MAIN_DB != 0 => {
            // SAFETY: the name that SQLite handed to this call for a database.
            let parameter = |key: &CStr| unsafe {
                let value = registration.api.uri_parameter(name, key.as_ptr());
                path_of(value).and_then(Path::to_str).map(str::to_owned)
            };
            decide(registration.api, path, flags, &parameter)
        }
        _ => Ok(Decision::Pass),
    };
    let is_journal = ffi::OPEN_MAIN_JOURNAL;
    if flags & is_journal != 0 && path.is_some_and(is_own_journal) {
        // SAFETY: the file is at least as long as was asked for.
        unsafe { database::open_journal(file) };
        return ffi::OK;
    }
    match catch_unwind(AssertUnwindSafe(decide)) {
        // SAFETY: the arguments are SQLite's own, for a VFS of its own.
        Ok(Ok(Decision::Pass)) => unsafe {
            ((*registration.base).open)(registration.base, name, file, flags, out_flags)
        },
        Ok(Ok(Decision::Compressed(database))) => {
            if !out_flags.is_null() {
                let read_only = match database.is_read_only() {
                    true => (flags & !0x7) | ffi::OPEN_READONLY,
                    false => flags,
                };
                // SAFETY: SQLite's own, and not null.
                unsafe { *out_flags = read_only };
            }
            // SAFETY: the file is at least as long as was asked for.
            unsafe { database::open(file, database) };
            ffi::OK
        }
        Ok(Err(error)) => {
            registration
                .api
                .log(ffi::CANTOPEN, &format!("breakeven: {error}"));
            ffi::CANTOPEN
        }
        Err(_) => ffi::IOERR,
    }
}

/// A TiB, so that no number that is a slip is taken for a memory.
const PAGE_CACHE_MIB_MAX: u64 = 1 << 20;

/// More than any machine encodes by.
const THREADS_MAX: usize = 64;
/// Of more processors than this the others are left to the host.
const USUAL_THREADS_MAX: usize = 4;

/// What the parameters of a URI ask for.
#[derive(Default)]
pub struct Asked {
    pub options: PageOptions,
    /// Whether commits are left to the system to write.
    pub is_lazy: bool,
    /// Whether SQLite is not going to lock.
    pub is_unlocked: bool,
    /// Whether who reads keeps writers out.
    keeps_writers_out: bool,
}

fn options_of(is_read_only: bool, parameter: &dyn Fn(&CStr) -> Option<String>) -> Result<Asked> {
    let mut options = PageOptions {
        is_read_only,
        ..PageOptions::default()
    };
    if let Some(method) = parameter(c"codec") {
        let method: Method = method.parse()?;
        method.check()?;
        options.method = Some(method);
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
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    options.threads = processors.min(USUAL_THREADS_MAX);
    if let Some(threads) = parameter(c"threads") {
        let number = threads.parse::<usize>().ok();
        let in_range = |number: &usize| (1..=THREADS_MAX).contains(number);
        options.threads = number.filter(in_range).ok_or_else(|| {
            let reason = format!("'{threads}': a number from 1 to {THREADS_MAX}");
            Error::invalid("threads", reason)
        })?;
    }
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
    Ok(Asked {
        options,
        is_lazy,
        is_unlocked: is_yes(c"nolock") || is_yes(c"immutable"),
        keeps_writers_out,
    })
}

/// Returns whether SQLite takes a parameter's value for a yes.
fn is_yes(value: &str) -> bool {
    let number: String = value.chars().take_while(char::is_ascii_digit).collect();
    let words = ["on", "yes", "true"];
    number.parse::<u64>().is_ok_and(|number| number > 0)
        || words.iter().any(|word| value.eq_ignore_ascii_case(word))
}

fn decide(
    api: Api,
    path: &Path,
    flags: c_int,
    parameter: &dyn Fn(&CStr) -> Option<String>,
) -> Result<Decision> {
    let is_read_only = flags & ffi::OPEN_READONLY != 0;
    let Some((folder, name)) = folder_and_name(path) else {
        return Ok(Decision::Pass);
    };
    let Ok(storage) = RealStorage::open_folder(&folder) else {
        return Ok(Decision::Pass);
    };
    let system = storage.system()?;
    let storage: Arc<dyn Storage> = Arc::new(storage);
    let mut asked = options_of(is_read_only, parameter)?;
    let options = asked.options;
    let kind = match storage.open(&name, OpenOptions::read_only()) {
        Ok(file) => file_kind(&*file)?,
        Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
            match flags & ffi::OPEN_CREATE {
                0 => return Ok(Decision::Pass),
                _ => FileKind::Empty,
            }
        }
        // The other VFS says what is wrong, in SQLite's words.
        Err(_) => return Ok(Decision::Pass),
    };
    let is_ours = match kind {
        FileKind::Plain | FileKind::Other => false,
        FileKind::Empty => !is_read_only,
        FileKind::Compressed => true,
    };
    if !is_ours {
        return match is_open(path) {
            // Its journal would be taken for that of the other, which is none.
            true => {
                let reason = "it took the place of a compressed one that is still open";
                Err(Error::invalid("database", reason))
            }
            false => Ok(Decision::Pass),
        };
    }
    // Who promises that nobody else is there needs no locks.
    if !asked.is_unlocked {
        system.check_network(path)?;
    }
    refuse_journals(path)?;
    if kind == FileKind::Empty {
        create(&*storage, (&folder, &name), options, parameter)?;
    }
    if !asked.is_unlocked {
        system.check_locks(&*storage, &name)?;
    }
    let mut connection = match connect(&storage, &name, options) {
        Err(Error::Io { source, .. }) if is_unwritable(&source) && !is_read_only => {
            asked.options.is_read_only = true;
            connect(&storage, &name, asked.options)?
        }
        other => other?,
    };
    if asked.keeps_writers_out {
        connection.keep_writers_out();
    }
    let opened = Opened::new(path);
    let database = Database::new(api, connection, opened, &asked);
    Ok(Decision::Compressed(Box::new(database)))
}

/// Makes the file as SQLite's own VFS would: with the mode of the file that `modeof` names, or which stands there empty, to
/// the bit; else with the usual one, of which the process's mask takes some away. An empty file keeps its owner, where
/// this process may give files away.
fn create(
    storage: &dyn Storage,
    (folder, name): (&Path, &str),
    options: PageOptions,
    parameter: &dyn Fn(&CStr) -> Option<String>,
) -> Result<()> {
    let path = folder.join(name);
    let empty = std::fs::metadata(&path).ok();
    let mode = match parameter(c"modeof") {
        Some(model) => {
            let found = std::fs::metadata(&model);
            let found = found.map_err(|error| Error::io("status", model, error))?;
            Some(found.mode() & 0o777)
        }
        None => empty.as_ref().map(|empty| empty.mode() & 0o777),
    };
    let new = PageOptions {
        mode: mode.unwrap_or(options.mode),
        ..options
    };
    if !PageStore::create(storage, name, new)? {
        return Ok(());
    }
    let made = |error| Error::io("change mode", &path, error);
    if let Some(empty) = empty {
        let now = std::fs::metadata(&path).map_err(made)?;
        if (now.uid(), now.gid()) != (empty.uid(), empty.gid()) {
            // Only root may.
            let _ = chown(&path, Some(empty.uid()), Some(empty.gid()));
        }
    }
    match mode {
        // The mask took bits away that the other file has.
        Some(mode) => std::fs::set_permissions(&path, Permissions::from_mode(mode)).map_err(made),
        None => Ok(()),
    }
}

/// Opens a connection to the store that this process has of the file, or to a new one.
fn connect(storage: &Arc<dyn Storage>, name: &str, options: PageOptions) -> Result<Connection> {
    let new = Arc::new(PageStore::new(Arc::clone(storage), name, options));
    let connection = Connection::open(Arc::clone(&new))?;
    let identity = connection.status()?.identity;
    let (device, inode) = (identity.device, identity.inode);
    let key = (device, inode, options.is_read_only, fork::count());
    let mut stores = lock(&STORES);
    let stores = stores.get_or_insert_default();
    stores.retain(|_, store| store.strong_count() > 0);
    match stores.get(&key).and_then(Weak::upgrade) {
        Some(known) => Connection::open(known),
        None => {
            stores.insert(key, Arc::downgrade(&new));
            Ok(connection)
        }
    }
}

fn is_unwritable(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem};
    matches!(error.kind(), PermissionDenied | ReadOnlyFilesystem)
}

/// A compressed database never has a journal beside it. One that is there belongs to a plain database that
/// had this name, and to open that one again would be to lose what the journal holds.
fn refuse_journals(path: &Path) -> Result<()> {
    for suffix in SUFFIXES {
        let mut journal = path.as_os_str().to_owned();
        journal.push(suffix);
        let journal = Path::new(&journal);
        if std::fs::metadata(journal).is_ok_and(|found| found.len() > 0) {
            let reason = format!("{} is there, of another database", journal.display());
            return Err(Error::invalid("database", reason));
        }
    }
    Ok(())
}

/// Returns the folder and the name of a file, of which the last part is no symbolic link.
fn folder_and_name(path: &Path) -> Option<(PathBuf, String)> {
    let real = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    let name = real.file_name()?.to_str()?.to_owned();
    let folder = real.parent()?;
    let folder = match folder.as_os_str().is_empty() {
        true => Path::new("."),
        false => folder,
    };
    Some((folder.to_path_buf(), name))
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
    if flags == ffi::ACCESS_EXISTS && is_own.unwrap_or(false) {
        // SAFETY: as above.
        unsafe { *result = 0 };
        return ffi::OK;
    }
    // SAFETY: as above, for the VFS before.
    unsafe { (base(vfs).access)(base(vfs), name, flags, result) }
}

/// # Safety
/// `vfs` is the one that was registered.
unsafe fn base<'a>(vfs: *mut Vfs) -> &'a mut Vfs {
    // SAFETY: its data is a registration that lives for ever, and so does the VFS before.
    unsafe { &mut *(*(*vfs).data.cast::<Registration>()).base }
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
pass!(get_last_error(bytes: c_int, target: *mut c_char) -> c_int);
pass!(current_time_ms(target: *mut i64) -> c_int);
