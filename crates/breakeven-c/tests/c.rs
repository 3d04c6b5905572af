//! The C library as C programs see it. The tests hold the header against the numbers and layouts here, compile and run
//! the example solver with either library, and misuse the functions themselves.
//!
//! `unsafe` here: the functions are called with pointers, right ones and null ones.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::fmt::Write as _;
use std::fs;
use std::mem::{MaybeUninit, offset_of, size_of};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::ptr;

use breakeven_c::*;

/// Runs a command and says what it wrote where it fails.
fn run(command: &mut Command) -> Output {
    let output = command.stdin(Stdio::null()).output();
    let output = output.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let (out, err) = (&output.stdout, &output.stderr);
    assert!(
        output.status.success(),
        "{command:?}: {}{}",
        String::from_utf8_lossy(out),
        String::from_utf8_lossy(err)
    );
    output
}

fn crate_folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The C compiler, as strict as it can be, with the header's folder.
fn compiler(language: &str) -> Command {
    let mut command = Command::new("cc");
    command.args(["-Wall", "-Wextra", "-Wpedantic", "-Werror", language]);
    command.arg("-I").arg(crate_folder().join("include"));
    command
}

/// The folder where cargo put the libraries: that of this test.
fn library_folder() -> PathBuf {
    let test = std::env::current_exe().expect("a name of this test");
    test.parent().expect("its folder").to_path_buf()
}

/// Assertions on every constant and layout of the header, by their values in Rust.
fn assertions() -> String {
    let mut text = String::from("#include <breakeven.h>\n");
    let mut say = |left: &str, right: u64| {
        writeln!(text, "_Static_assert({left} == {right}, \"{left}\");").unwrap();
    };
    for (name, code) in [
        ("OK", OK),
        ("INVALID", INVALID),
        ("IO", IO),
        ("CORRUPT", CORRUPT),
        ("LIMIT", LIMIT),
        ("UNSUPPORTED", UNSUPPORTED),
        ("POISONED", POISONED),
        ("PANIC", PANIC),
        ("STOPPED", STOPPED),
    ] {
        say(&format!("BREAKEVEN_{name}"), code as u64);
    }
    for (name, number) in [
        ("FIXED", FIXED),
        ("FASTEST", FASTEST),
        ("WITHIN", WITHIN),
        ("SMALLEST", SMALLEST),
        ("MONEY", MONEY),
        ("MIXED", MIXED),
        ("SYNC", SYNC),
        ("DETERMINISTIC", DETERMINISTIC),
    ] {
        say(&format!("BREAKEVEN_{name}"), u64::from(number));
    }
    macro_rules! layout {
        ($c:literal, $rust:ty, $($field:ident $name:literal),+) => {
            say(&format!("sizeof({})", $c), size_of::<$rust>() as u64);
            $(say(&format!("offsetof({}, {})", $c, $name), offset_of!($rust, $field) as u64);)+
        };
    }
    layout!("breakeven_options", Options, size "size", workers "workers", block "block",
        flags "flags", strategy "strategy", reserved "reserved", factor "factor", link "link",
        method "method", stop "stop", pledged_source_size "pledged_source_size",
        money "money");
    layout!("breakeven_money", Money, price_per_core_hour "price_per_core_hour",
        price_per_tb_year "price_per_tb_year", days "days", reads "reads");
    layout!("breakeven_summary", Summary, raw "raw", stored "stored", blocks "blocks",
        plain_blocks "plain_blocks", compressed_seconds "compressed_seconds",
        drained_seconds "drained_seconds");
    layout!("breakeven_times", Times, compressed_seconds "compressed_seconds",
        drained_seconds "drained_seconds");
    layout!("breakeven_hint", Hint, start "start", end "end", number "type", payload "payload");
    text
}

#[test]
fn the_header_says_what_the_library_is() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("assertions.c");
    let text = assertions();
    assert!(text.lines().count() >= 35, "{text}");
    fs::write(&source, &text).unwrap();
    let check = |text: &str| {
        fs::write(&source, text).unwrap();
        let mut command = compiler("-std=c11");
        command.arg("-fsyntax-only").arg(&source);
        command.stdin(Stdio::null()).output().unwrap()
    };
    let output = check(&text);
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{message}");
    // A wrong number is noticed.
    let wrong = text.replace("BREAKEVEN_PANIC == 7", "BREAKEVEN_PANIC == 8");
    assert!(wrong != text && !check(&wrong).status.success());
}

/// Says that something is not here and nothing was tried with it, which is an error where everything has to be.
fn left_out(what: &str) {
    println!("{what}");
    assert!(std::env::var_os("CI").is_none(), "{what}");
}

#[test]
fn the_header_is_for_cpp_as_well() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("program.cpp");
    fs::write(
        &source,
        "#include <breakeven.h>\nint main() { return 0; }\n",
    )
    .unwrap();
    if Command::new("c++").arg("--version").output().is_err() {
        return left_out("c++ is not installed: the header was not tried with it");
    }
    run(compiler("-std=c++17").arg("-fsyntax-only").arg(&source));
}

/// Compiles the example with `libraries` behind it, and runs it both ways.
fn solve(folder: &Path, name: &str, libraries: &[&str]) {
    let program = folder.join(name);
    let mut command = compiler("-std=c11");
    command.arg("-O2").arg("-o").arg(&program);
    command.arg(crate_folder().join("examples/solver.c"));
    command.arg("-L").arg(library_folder()).args(libraries);
    run(&mut command);
    for way in ["sync", "async"] {
        let path = folder.join(format!("{name}-{way}.zst"));
        let mut command = Command::new(&program);
        command.env("LD_LIBRARY_PATH", library_folder());
        // Checkpoints of some 2 MiB, which are no whole number of blocks.
        let output = run(command.arg(way).arg(&path).args(["517", "6", "4"]));
        let text = String::from_utf8(output.stdout).unwrap();
        let raw = 517 * 517 * 8 * 6;
        let expected = format!("{way}: {raw} bytes in ");
        assert!(text.contains(&expected), "{text}");
        assert!(text.contains("6 checkpoints read back as they were written"));
        assert_eq!(
            text.matches("compressed after").count(),
            if way == "sync" { 6 } else { 0 }
        );
        let stored = fs::metadata(&path).unwrap().len();
        assert!(
            text.contains(&format!("in {stored}, ")) && stored < raw / 2,
            "{text}"
        );
        let mut command = Command::new("zstd");
        if command.arg("--help").output().is_err() {
            left_out("zstd is not installed: the solver's streams were not tried with it");
            continue;
        }
        let decoded = run(Command::new("zstd").args(["-d", "-c"]).arg(&path)).stdout;
        assert_eq!(decoded.len() as u64, raw);
    }
    // Nothing is left beside the streams and the program.
    let names = fs::read_dir(folder)
        .unwrap()
        .map(|it| it.unwrap().file_name());
    let partial = names.filter(|it| it.to_string_lossy().contains("partial"));
    assert_eq!(partial.count(), 0);
}

/// A program that writes the same bytes with any number of workers, and one that stops itself by a signal.
const PROGRAM: &str = r#"
#include <breakeven.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

static breakeven_stop *stop;

static void on_signal(int signal)
{
    (void)signal;
    breakeven_stop_set(stop);
}

static void demand(int holds, const char *what)
{
    if (!holds) {
        fprintf(stderr, "%s: %s\n", what, breakeven_message());
        exit(1);
    }
}

static unsigned char data[3000000];

static void write_with(const char *path, uint32_t workers, uint32_t strategy, double days)
{
    /* 0.02 for a core and an hour, 50 for a TB and a year. */
    breakeven_money money = { 0.02, 50, 0, 1 };
    breakeven_options options = { sizeof options };
    breakeven_writer *writer;
    options.workers = workers;
    options.block = 1 << 18;
    options.flags = BREAKEVEN_MIXED | BREAKEVEN_DETERMINISTIC;
    options.strategy = strategy;
    if (strategy == BREAKEVEN_MONEY) {
        money.days = days;
        options.money = &money;
    }
    demand(breakeven_writer_open(path, &options, &writer) == BREAKEVEN_OK, "open");
    demand(breakeven_write_async(writer, data, sizeof data / 2, 0) == BREAKEVEN_OK, "write");
    demand(breakeven_write(writer, data + sizeof data / 2, sizeof data / 2, sizeof data / 2) == BREAKEVEN_OK,
           "write the rest");
    demand(breakeven_wait_for(writer, data, sizeof data) == BREAKEVEN_OK, "wait");
    demand(breakeven_writer_close(writer, NULL) == BREAKEVEN_OK, "close");
}

static void be_stopped(const char *path)
{
    breakeven_options options = { sizeof options };
    breakeven_writer *writer;
    uint64_t at = 0;
    int code;
    options.stop = stop;
    demand(breakeven_writer_open(path, &options, &writer) == BREAKEVEN_OK, "open");
    demand(breakeven_write_async(writer, data, sizeof data, 0) == BREAKEVEN_OK, "write");
    demand(signal(SIGUSR1, on_signal) != SIG_ERR && raise(SIGUSR1) == 0, "signal");
    code = breakeven_wait(writer);
    demand(code == BREAKEVEN_STOPPED, "wait");
    at = sizeof data;
    code = breakeven_write(writer, data, sizeof data, at);
    demand(code == BREAKEVEN_POISONED, "write after it was stopped");
    demand(breakeven_writer_close(writer, NULL) == BREAKEVEN_POISONED, "close");
}

int main(int count, char **names)
{
    size_t at;
    demand(count == 9, "eight names");
    for (at = 0; at < sizeof data; at++)
        data[at] = (unsigned char)(at % 1000 < 600 ? at / 7 % 64 : at * at >> 9);
    write_with(names[1], 1, BREAKEVEN_FASTEST, 0);
    write_with(names[2], 3, BREAKEVEN_FASTEST, 0);
    write_with(names[3], 1, BREAKEVEN_SMALLEST, 0);
    write_with(names[4], 2, BREAKEVEN_SMALLEST, 0);
    write_with(names[5], 1, BREAKEVEN_MONEY, 0.001);
    write_with(names[6], 1, BREAKEVEN_MONEY, 3650);
    write_with(names[7], 3, BREAKEVEN_MONEY, 3650);
    stop = breakeven_stop_new();
    be_stopped(names[8]);
    breakeven_stop_free(stop);
    return 0;
}
"#;

#[test]
fn a_program_writes_the_same_bytes_every_time_and_stops_itself() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("program.c");
    fs::write(&source, PROGRAM).unwrap();
    let program = folder.path().join("program");
    let mut command = compiler("-std=c11");
    // The header asks for zeros in the fields that are not named.
    command.args([
        "-Wno-missing-field-initializers",
        "-D_POSIX_C_SOURCE=200809L",
    ]);
    command.arg("-o").arg(&program).arg(&source);
    command.arg("-L").arg(library_folder()).arg("-lbreakeven_c");
    run(&mut command);
    let names = [
        "one", "three", "small", "same", "short", "long", "longer", "stopped",
    ];
    let paths = names.map(|name| folder.path().join(name));
    let mut command = Command::new(&program);
    command
        .env("LD_LIBRARY_PATH", library_folder())
        .args(&paths);
    run(&mut command);
    let stored: Vec<Vec<u8>> = paths[..7].iter().map(|it| fs::read(it).unwrap()).collect();
    assert!(stored[0] == stored[1] && stored[2] == stored[3] && stored[5] == stored[6]);
    let [fast, small, short, long] = [0, 2, 4, 5].map(|it| stored[it].len());
    assert!(small < fast, "{small}, {fast}");
    // A stream that is kept longer is worth more work.
    assert!(long < short, "{long}, {short}");
    // Beside the seven streams stand the program and its source alone.
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 9);
}

#[test]
fn the_solver_writes_its_checkpoints_with_the_shared_library() {
    let folder = tempfile::tempdir().unwrap();
    solve(folder.path(), "shared", &["-lbreakeven_c", "-lm"]);
}

#[test]
fn the_solver_writes_its_checkpoints_with_the_static_library() {
    let folder = tempfile::tempdir().unwrap();
    let libraries = ["-l:libbreakeven_c.a", "-lpthread", "-ldl", "-lm"];
    solve(folder.path(), "static", &libraries);
}

fn message() -> String {
    // SAFETY: the message is text until the next failure in this thread.
    let text = unsafe { CStr::from_ptr(breakeven_message()) };
    text.to_str().unwrap().to_string()
}

fn text_of(path: &Path) -> CString {
    CString::new(path.to_str().unwrap()).unwrap()
}

fn open(path: &Path, options: Option<&Options>) -> (c_int, *mut WriterHandle) {
    let mut writer = ptr::null_mut();
    let path = text_of(path);
    let options = options.map_or(ptr::null(), ptr::from_ref);
    // SAFETY: text, options of this type or none, and a place for the pointer.
    let code = unsafe { breakeven_writer_open(path.as_ptr(), options, &raw mut writer) };
    (code, writer)
}

fn options() -> Options {
    Options {
        size: size_of::<Options>() as u32,
        workers: 2,
        block: 4096,
        flags: 0,
        strategy: FIXED,
        reserved: 0,
        factor: 0.0,
        link: 0.0,
        method: ptr::null(),
        stop: ptr::null(),
        pledged_source_size: 0,
        money: ptr::null(),
    }
}

fn write(writer: *mut WriterHandle, bytes: &[u8], offset: u64) -> c_int {
    // SAFETY: an open writer or null, and bytes that stay.
    unsafe { breakeven_write(writer, bytes.as_ptr().cast(), bytes.len(), offset) }
}

fn close(writer: *mut WriterHandle) -> (c_int, Summary) {
    let mut summary = Summary::default();
    // SAFETY: an open writer or null, not used again, and a place for the summary.
    let code = unsafe { breakeven_writer_close(writer, &raw mut summary) };
    (code, summary)
}

/// Reads so many bytes from a place.
fn read(reader: *mut ReaderHandle, length: usize, offset: u64) -> (c_int, Vec<u8>) {
    let mut bytes = vec![0; length];
    let mut done = MaybeUninit::new(usize::MAX);
    // SAFETY: an open reader or null, a buffer of that length, and a place for the count.
    let (code, done) = unsafe {
        let buffer = bytes.as_mut_ptr().cast::<c_void>();
        let code = breakeven_read(reader, buffer, length, offset, done.as_mut_ptr());
        (code, done.assume_init())
    };
    bytes.truncate(done);
    (code, bytes)
}

fn open_reader(path: &Path) -> (c_int, *mut ReaderHandle) {
    let mut reader = ptr::null_mut();
    let path = text_of(path);
    // SAFETY: text, and a place for the pointer.
    let code = unsafe { breakeven_reader_open(path.as_ptr(), &raw mut reader) };
    (code, reader)
}

#[test]
fn null_pointers_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("stream.zst");
    let (mut writer, mut reader) = (ptr::null_mut(), ptr::null_mut());
    let text = text_of(&path);
    let buffer = [0_u8; 8];
    let bytes = buffer.as_ptr().cast::<c_void>();
    // SAFETY: the test passes null pointers; the others are as the functions ask.
    unsafe {
        let none = ptr::null::<c_char>();
        assert_eq!(
            breakeven_writer_open(none, ptr::null(), &raw mut writer),
            INVALID
        );
        assert!(
            writer.is_null() && message().contains("null"),
            "{}",
            message()
        );
        let no_place = ptr::null_mut();
        assert_eq!(
            breakeven_writer_open(text.as_ptr(), ptr::null(), no_place),
            INVALID
        );
        assert_eq!(breakeven_reader_open(none, &raw mut reader), INVALID);
        assert_eq!(
            breakeven_reader_open(text.as_ptr(), ptr::null_mut()),
            INVALID
        );
        let nobody = ptr::null_mut();
        assert_eq!(breakeven_write(nobody, bytes, 8, 0), INVALID);
        assert_eq!(breakeven_write_async(nobody, bytes, 8, 0), INVALID);
        assert_eq!(breakeven_wait(nobody), INVALID);
        assert_eq!(breakeven_advise(nobody, ptr::null(), 0), INVALID);
        assert_eq!(breakeven_call_times(nobody, ptr::null_mut()), INVALID);
        assert_eq!(breakeven_writer_close(nobody, ptr::null_mut()), INVALID);
        breakeven_writer_abandon(nobody);
        breakeven_reader_close(ptr::null_mut());
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn impossible_lengths_are_refused_and_spoil_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("stream.zst");
    let buffer = [0_u8; 8];
    let bytes = buffer.as_ptr().cast::<c_void>();
    // SAFETY: the test passes null pointers and impossible lengths.
    unsafe {
        let (code, writer) = open(&path, None);
        assert_eq!(code, OK);
        let nothing = ptr::null::<c_void>();
        for length in [1, usize::MAX] {
            assert_eq!(breakeven_write(writer, nothing, length, 0), INVALID);
            assert_eq!(breakeven_write_async(writer, nothing, length, 0), INVALID);
        }
        assert_eq!(breakeven_write(writer, bytes, usize::MAX, 0), INVALID);
        assert_eq!(breakeven_advise(writer, ptr::null(), 1), INVALID);
        assert_eq!(breakeven_advise(writer, ptr::null(), usize::MAX), INVALID);
        assert_eq!(breakeven_call_times(writer, ptr::null_mut()), INVALID);
        let mut times = Times::default();
        assert_eq!(breakeven_call_times(writer, &raw mut times), INVALID);
        assert!(message().contains("none"), "{}", message());
        // None of this spoiled it, and nothing from nowhere is nothing.
        assert_eq!(breakeven_write(writer, nothing, 0, 0), OK);
        assert_eq!(breakeven_write(writer, bytes, 8, 0), OK);
        assert_eq!(breakeven_writer_close(writer, ptr::null_mut()), OK);
    }
    let (code, reader) = open_reader(&path);
    assert_eq!(code, OK);
    // SAFETY: as above.
    unsafe {
        let mut done = 9;
        assert_eq!(
            breakeven_read(reader, ptr::null_mut(), 8, 0, &raw mut done),
            INVALID
        );
        assert_eq!(done, 0);
    }
    assert_eq!(read(reader, 9, 0), (OK, vec![0; 8]));
    // SAFETY: an open reader, not used again.
    unsafe { breakeven_reader_close(reader) };
}

/// Returns options that tell of a length, which need not be so.
fn pledged(pledged_source_size: u64, options: Options) -> Options {
    Options {
        pledged_source_size,
        ..options
    }
}

#[test]
fn options_that_cannot_be_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("stream.zst");
    let (known, unknown, mixed) = (c"zstd:1", c"nonsense:1", c"lz4:1");
    let usual = options();
    let with = |method: &CStr| Options {
        method: method.as_ptr(),
        ..usual
    };
    let strategy = |strategy, factor| Options {
        strategy,
        factor,
        ..usual
    };
    let with_block = |block, workers| Options {
        block,
        workers,
        ..usual
    };
    let link = |link| Options { link, ..usual };
    let mut both = with(known);
    both.strategy = FASTEST;
    let mut reserved = usual;
    reserved.reserved = 1;
    for (name, wrong) in [
        ("size", Options { size: 8, ..usual }),
        ("flags", Options { flags: 8, ..usual }),
        ("flags", {
            let within = strategy(WITHIN, 1.5);
            Options {
                flags: DETERMINISTIC,
                ..within
            }
        }),
        ("reserved", reserved),
        ("workers", with_block(4096, 9999)),
        ("block", with_block(100, 2)),
        ("link", link(-1.0)),
        ("link", link(f64::NAN)),
        ("strategy", strategy(77, 0.0)),
        ("factor", strategy(WITHIN, 0.5)),
        ("factor", strategy(WITHIN, f64::NAN)),
        ("factor", strategy(FASTEST, 2.0)),
        ("method", with(unknown)),
        ("method", with(mixed)),
        ("method", both),
        ("money", strategy(MONEY, 0.0)),
    ] {
        let (code, writer) = open(&path, Some(&wrong));
        assert!(code == INVALID && writer.is_null(), "{name}: {}", message());
        assert!(!message().is_empty());
    }
    let (code, writer) = open(Path::new("/no/such/folder/stream.zst"), None);
    assert!(code == IO && writer.is_null(), "{}", message());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    let right = Options {
        flags: MIXED | SYNC,
        ..with(mixed)
    };
    let (within, smallest) = (strategy(WITHIN, 1.5), strategy(SMALLEST, 0.0));
    let (short, long) = (pledged(1, within), pledged(u64::MAX, within));
    for right in [with(known), right, within, smallest, short, long] {
        let (code, writer) = open(&path, Some(&right));
        assert_eq!(code, OK, "{}", message());
        assert_eq!(write(writer, &[7; 50_000], 0), OK);
        let (code, summary) = close(writer);
        assert_eq!((code, summary.raw, summary.blocks), (OK, 50_000, 13));
        assert_eq!(summary.stored, fs::metadata(&path).unwrap().len());
    }
}

#[test]
fn money_is_counted_by_amounts_that_can_be() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("stream.zst");
    let open_with = |strategy, [core, storage, days, reads]: [f64; 4]| {
        let money = Money {
            price_per_core_hour: core,
            price_per_tb_year: storage,
            days,
            reads,
        };
        let options = Options {
            strategy,
            money: &raw const money,
            ..options()
        };
        open(&path, Some(&options))
    };
    let usual = [0.02, 50.0, 90.0, 1.0];
    for (place, wrong) in [
        (0, 0.0),
        (0, 1e19),
        (1, f64::NAN),
        (2, 0.0),
        (2, f64::INFINITY),
        (3, -1.0),
        (3, 1e10),
    ] {
        let mut amounts = usual;
        amounts[place] = wrong;
        let (code, writer) = open_with(MONEY, amounts);
        assert!(code == INVALID && writer.is_null(), "{amounts:?}");
        assert!(message().contains("is not"), "{}", message());
    }
    let (code, writer) = open_with(SMALLEST, usual);
    assert!(code == INVALID && writer.is_null(), "{}", message());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    for right in [usual, [1e18, 1e18, 1e6, 1e9], [1e-9, 1e-9, 1e-9, 0.0]] {
        let (code, writer) = open_with(MONEY, right);
        assert_eq!(code, OK, "{}", message());
        assert_eq!(write(writer, &data(50_000), 0), OK);
        assert_eq!(close(writer).0, OK, "{}", message());
    }
}

/// Numbers whose every byte tells its place.
fn data(bytes: usize) -> Vec<u8> {
    (0..bytes as u32 / 4).flat_map(u32::to_le_bytes).collect()
}

#[test]
fn both_ways_of_writing_are_read_from_any_place() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("stream.zst");
    let data = data(400_000);
    let (code, writer) = open(&path, Some(&options()));
    assert_eq!(code, OK);
    let hint = |start, end, number| Hint {
        start,
        end,
        number,
        payload: [0; 14],
    };
    // No compression, and one that nobody knows.
    let hints = [hint(8_000, 30_000, 1), hint(0, 9, 12_345)];
    let wrong = Hint {
        number: 5,
        payload: [0xFF; 14],
        ..hints[0]
    };
    // SAFETY: an open writer, hints that are there, and buffers that stay until the wait.
    unsafe {
        assert_eq!(breakeven_advise(writer, hints.as_ptr(), 2), OK);
        assert_eq!(breakeven_advise(writer, &raw const wrong, 1), INVALID);
        for (number, piece) in data.chunks(100_000).enumerate() {
            let (bytes, offset) = (piece.as_ptr().cast(), number as u64 * 100_000);
            let code = match number % 2 {
                0 => breakeven_write_async(writer, bytes, piece.len(), offset),
                _ => breakeven_write(writer, bytes, piece.len(), offset),
            };
            assert_eq!(code, OK, "{}", message());
        }
        // A place that was written before; then the stream goes on, over a gap.
        assert_eq!(breakeven_write(writer, data.as_ptr().cast(), 1, 5), INVALID);
        assert!(message().contains("byte 5"), "{}", message());
        let end = b"end".as_ptr().cast();
        assert_eq!(breakeven_write_async(writer, end, 3, 400_010), OK);
        assert_eq!(breakeven_wait(writer), OK);
        let mut times = Times::default();
        assert_eq!(breakeven_call_times(writer, &raw mut times), OK);
        assert!(times.compressed_seconds > 0.0, "{times:?}");
    }
    // Nothing has the name yet.
    assert!(!path.exists());
    let (code, summary) = close(writer);
    assert_eq!((code, summary.raw), (OK, 400_013));
    assert!(summary.compressed_seconds <= summary.drained_seconds);
    let expected = [&data[..], &[0; 10], b"end"].concat();
    let (code, reader) = open_reader(&path);
    assert_eq!(code, OK);
    for (length, offset) in [(10, 399_999), (400_013, 0), (5, 123_457), (9_000, 8_000)] {
        let (code, found) = read(reader, length, offset);
        let end = expected.len().min(offset as usize + length);
        assert_eq!(code, OK, "{}", message());
        assert!(
            found == expected[offset as usize..end],
            "{length} bytes from {offset}"
        );
    }
    for beyond in [400_013, u64::MAX] {
        assert_eq!(read(reader, 5, beyond), (OK, vec![]));
    }
    // SAFETY: an open reader, not used again.
    unsafe { breakeven_reader_close(reader) };
}

#[test]
fn a_stream_without_a_table_is_read_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("stream.zst");
    let (code, writer) = open(&path, Some(&options()));
    assert_eq!(code, OK);
    let data = data(40_000);
    assert_eq!(write(writer, &data, 0), OK);
    assert_eq!(close(writer).0, OK);
    let mut stream = fs::read(&path).unwrap();
    // Ten blocks are in the table, which is the last frame.
    let table_bytes = 8 + 12 * 10 + 9;
    stream.truncate(stream.len() - table_bytes);
    fs::write(&path, &stream).unwrap();
    let (code, reader) = open_reader(&path);
    assert_eq!(code, OK);
    assert_eq!(read(reader, 10, 5_000), (OK, data[5_000..5_010].to_vec()));
    let (code, found) = read(reader, 10, 4_000);
    assert!(code == INVALID && found.is_empty(), "{}", message());
    assert_eq!(read(reader, 99_999, 30_000), (OK, data[30_000..].to_vec()));
    // SAFETY: an open reader, not used again.
    unsafe { breakeven_reader_close(reader) };
    // Damage is reported, behind the bytes that are right.
    let middle = stream.len() / 2;
    stream[middle] ^= 1;
    fs::write(&path, &stream).unwrap();
    let (code, reader) = open_reader(&path);
    assert_eq!(code, OK);
    let (code, found) = read(reader, 40_000, 0);
    assert!(code == CORRUPT && data.starts_with(&found), "{}", message());
    assert!(message().contains("byte"), "{}", message());
    assert_eq!(read(reader, 40_000, found.len() as u64).0, POISONED);
    // SAFETY: an open reader, not used again.
    unsafe { breakeven_reader_close(reader) };
}

#[test]
fn what_is_given_up_leaves_nothing_and_what_fails_leaves_the_old() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("stream.zst");
    fs::write(&path, b"old").unwrap();
    let data = data(4_000_000);
    let (code, writer) = open(&path, Some(&options()));
    assert_eq!(code, OK);
    // SAFETY: an open writer, and a buffer that stays until it is abandoned.
    unsafe {
        assert_eq!(
            breakeven_write_async(writer, data.as_ptr().cast(), data.len(), 0),
            OK
        );
        breakeven_writer_abandon(writer);
    }
    assert_eq!(fs::read(&path).unwrap(), b"old");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    // A file cannot become a folder that came up meanwhile: closing fails, and cleans up.
    let taken = folder.path().join("folder");
    let (code, writer) = open(&taken, None);
    assert_eq!(code, OK);
    fs::create_dir(&taken).unwrap();
    assert_eq!(write(writer, &data, 0), OK);
    let (code, _) = close(writer);
    assert!(code == IO && message().contains("rename"), "{}", message());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    // One that is there is refused before anything is written.
    let (code, writer) = open(&taken, None);
    assert!(code == IO && writer.is_null(), "{}", message());
    assert!(
        message().contains("folder: is a directory"),
        "{}",
        message()
    );
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
}

/// Writes a stream to a path, synced, and returns the code of closing it.
fn write_to(path: &Path, data: &[u8]) -> c_int {
    let options = Options {
        flags: SYNC,
        ..options()
    };
    let (code, writer) = open(path, Some(&options));
    assert_eq!(code, OK, "{}", message());
    let _ = write(writer, data, 0);
    close(writer).0
}

#[test]
fn a_link_stays_and_what_it_points_to_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::create_dir(at("sub")).unwrap();
    fs::write(at("sub/old"), b"old").unwrap();
    for name in ["old", "new"] {
        let link = at(name);
        std::os::unix::fs::symlink(format!("sub/{name}"), &link).unwrap();
        assert_eq!(write_to(&link, b"state"), OK, "{}", message());
        assert!(link.is_symlink());
        let (code, reader) = open_reader(&at("sub").join(name));
        assert_eq!(code, OK);
        assert_eq!(read(reader, 9, 0), (OK, b"state".to_vec()));
        // SAFETY: an open reader, not used again.
        unsafe { breakeven_reader_close(reader) };
    }
    assert_eq!(fs::read_dir(at("sub")).unwrap().count(), 2);
}

#[test]
fn what_is_no_file_is_written_to_and_stays() {
    let folder = tempfile::tempdir().unwrap();
    let fifo = folder.path().join("fifo");
    run(Command::new("mkfifo").arg(&fifo));
    let data = data(1_000_000);
    let (received, code) = std::thread::scope(|scope| {
        let received = scope.spawn(|| fs::read(&fifo).unwrap());
        let code = write_to(&fifo, &data);
        (received.join().unwrap(), code)
    });
    assert_eq!(code, OK, "{}", message());
    let kind = fs::symlink_metadata(&fifo).unwrap().file_type();
    assert!(std::os::unix::fs::FileTypeExt::is_fifo(&kind));
    let stream = folder.path().join("received");
    fs::write(&stream, received).unwrap();
    let (code, reader) = open_reader(&stream);
    assert_eq!(code, OK);
    assert!(read(reader, data.len() + 1, 0) == (OK, data.clone()));
    // SAFETY: an open reader, not used again.
    unsafe { breakeven_reader_close(reader) };
    // A node of its own for the device that is always full: one that is lost harms nobody.
    let full = folder.path().join("full");
    let mut mknod = Command::new("mknod");
    let made = mknod.arg(&full).args(["c", "1", "7"]).output();
    if !made.is_ok_and(|it| it.status.success()) || fs::File::open(&full).is_err() {
        return println!("no node may be made: a device was not tried");
    }
    let code = write_to(&full, &data);
    assert!(
        code != OK && message().contains("No space"),
        "{}",
        message()
    );
    let kind = fs::symlink_metadata(&full).unwrap().file_type();
    assert!(std::os::unix::fs::FileTypeExt::is_char_device(&kind));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3);
}

#[test]
fn what_killed_programs_left_is_removed_by_the_next() {
    let folder = tempfile::tempdir().unwrap();
    for number in [0, 1, 2, 9] {
        let name = format!(".breakeven-{number}.partial");
        fs::write(folder.path().join(name), b"left").unwrap();
    }
    let path = folder.path().join("s".repeat(255));
    let (code, writer) = open(&path, None);
    assert_eq!(code, OK, "{}", message());
    assert_eq!(write(writer, b"state", 0), OK);
    assert_eq!(close(writer).0, OK, "{}", message());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    assert!(fs::metadata(&path).unwrap().len() > 5);
}

#[test]
fn one_of_several_buffers_is_waited_for_and_may_then_be_changed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("stream.zst");
    let (mut first, second) = (data(3_000_000), data(5_000_000));
    let before = first.clone();
    let method = c"zstd:9";
    let options = Options {
        workers: 1,
        block: 1 << 18,
        method: method.as_ptr(),
        ..options()
    };
    let (code, writer) = open(&path, Some(&options));
    assert_eq!(code, OK, "{}", message());
    let place = |bytes: &[u8]| bytes.as_ptr().cast::<c_void>();
    // SAFETY: an open writer, and buffers that stay; the first is changed only after the wait for it.
    unsafe {
        assert_eq!(
            breakeven_write_async(writer, place(&first), first.len(), 0),
            OK
        );
        let at = first.len() as u64;
        assert_eq!(
            breakeven_write_async(writer, place(&second), second.len(), at),
            OK
        );
        // Bytes that no call brought, none, and a part of the first.
        assert_eq!(breakeven_wait_for(writer, place(&before), before.len()), OK);
        assert_eq!(breakeven_wait_for(writer, ptr::null(), 0), OK);
        assert_eq!(
            breakeven_wait_for(writer, place(&first[2_999_999..]), 1),
            OK
        );
    }
    first.fill(0xEE);
    // SAFETY: as above; wrong pointers and lengths are refused.
    unsafe {
        assert_eq!(breakeven_wait_for(writer, ptr::null(), 1), INVALID);
        assert_eq!(
            breakeven_wait_for(writer, place(&first), usize::MAX),
            INVALID
        );
        assert_eq!(
            breakeven_wait_for(ptr::null_mut(), place(&first), 1),
            INVALID
        );
        let at = (first.len() + second.len()) as u64;
        assert_eq!(
            breakeven_write_async(writer, place(&first), first.len(), at),
            OK
        );
    }
    let (code, summary) = close(writer);
    assert_eq!((code, summary.raw), (OK, 11_000_000), "{}", message());
    let (code, reader) = open_reader(&path);
    assert_eq!(code, OK);
    for (at, expected) in [(0, &before), (3_000_000, &second), (8_000_000, &first)] {
        let (code, found) = read(reader, expected.len(), at);
        assert!(code == OK && found == *expected, "at {at}: {}", message());
    }
    // SAFETY: an open reader, not used again.
    unsafe { breakeven_reader_close(reader) };
}
