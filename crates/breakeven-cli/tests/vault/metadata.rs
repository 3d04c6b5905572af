//! What the stock programs set on files, kept and given back on several file systems; and what these refuse.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

use super::{done, ok, run};

const VAULT: &str = "breakeven vault -r v -p p";

fn is_root_test() -> bool {
    std::env::var_os("BREAKEVEN_ROOT_TESTS").is_some()
}

/// A file system of its own.
struct Mounted(TempDir);

impl Mounted {
    fn new(kind: &str) -> Option<Mounted> {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("mounted");
        fs::create_dir(&path).expect("a folder");
        let works = |command: &mut Command| command.status().is_ok_and(|status| status.success());
        let mut mount = Command::new("mount");
        let is_made = match kind {
            "tmpfs" => {
                mount.args(["-t", kind, kind]);
                true
            }
            _ => {
                let image = folder.path().join("image");
                let file = fs::File::create(&image).expect("a file");
                file.set_len(320 << 20).expect("its length");
                mount.args(["-o", "loop"]).arg(&image);
                let mut make = Command::new(format!("mkfs.{kind}"));
                works(make.arg("-q").arg(&image))
            }
        };
        let is_mounted = is_made && works(mount.arg(&path));
        assert!(
            is_mounted || std::env::var_os("CI").is_none(),
            "no {kind} to try"
        );
        if !is_mounted {
            println!("no {kind} here: nothing tried");
        }
        is_mounted.then_some(Mounted(folder))
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("mounted")
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.path()).status();
    }
}

/// A tree on which the stock programs have set all that they can.
fn make_tree(root: &Path) {
    fs::create_dir_all(root.join("folder")).expect("folders");
    for name in ["file", "folder/shut", "twice", "owned"] {
        fs::write(root.join(name), name).expect("a file");
    }
    done(
        Command::new("cp")
            .arg("/bin/true")
            .arg(root.join("program")),
    );
    done(Command::new("mkfifo").arg(root.join("pipe")));
    std::os::unix::fs::symlink("file", root.join("link")).expect("a link");
    fs::hard_link(root.join("link"), root.join("folder/link")).expect("a link");
    fs::hard_link(root.join("twice"), root.join("folder/twice")).expect("a link");
    let lines = [
        "setfattr -n user.k -v val file",
        "setfattr -n user.long -v 0x0102 twice",
        "setfattr -n user.of.folder -v val folder",
        "setfattr -h -n trusted.k -v val link",
        "setfattr -n trusted.k -v val program",
        "chown 999:998 owned program folder pipe",
        "chmod 0400 folder/shut",
        "chmod 2755 owned",
        "chmod 0620 pipe",
        "setfacl -m u:1234:rw file",
        "setfacl -m g:55:r pipe",
        "setfacl -m d:u:1234:rwx,u:7:x folder",
        "setcap cap_net_raw+ep program",
    ];
    for line in lines {
        let mut words = line.split(' ');
        let mut command = Command::new(words.next().expect("a program"));
        done(command.args(words).current_dir(root));
    }
}

/// All that the stock programs tell of a tree.
fn told(root: &Path) -> String {
    let tell = |line: &str| {
        let mut words = line.split(' ');
        let mut command = Command::new(words.next().expect("a program"));
        done(command.args(words).current_dir(root))
    };
    // They go through a folder in its own order.
    let sorted = |text: &str, between: &str| {
        let mut parts: Vec<_> = text.trim().split(between).collect();
        parts.sort_unstable();
        parts.join(between)
    };
    let attributes = sorted(&tell("getfattr -R -P -h -d -m - -e hex ."), "\n\n");
    let lists = sorted(&tell("getfacl -R -P -n ."), "\n\n");
    let capabilities = sorted(&tell("getcap -r ."), "\n");
    let status = tell("find . -printf %p:%m:%U:%G:%n:%l:%TY-%Tm-%Td:%TT\\n");
    [attributes, lists, capabilities, sorted(&status, "\n")].join("\n")
}

/// Extended attributes, access control lists, capabilities and modes, of files, folders, links and pipes, anew and over others.
#[test]
fn root_what_stock_programs_set_comes_back_on_each_file_system() {
    if !is_root_test() {
        return;
    }
    for kind in ["ext4", "xfs", "tmpfs"] {
        let Some(mounted) = Mounted::new(kind) else {
            continue;
        };
        let path = mounted.path();
        make_tree(&path.join("tree"));
        fs::write(path.join("p"), "a password\n").expect("a file");
        ok(&path, &format!("{VAULT} init"));
        ok(&path, &format!("{VAULT} add tree"));
        let again = ok(&path, &format!("{VAULT} add --json tree"));
        println!("{kind}: {again}");
        ok(&path, &format!("{VAULT} restore latest --target back"));
        let below = path.strip_prefix("/").expect("a path");
        let back = path.join("back").join(below).join("tree");
        let was = told(&path.join("tree"));
        for wanted in [
            "user.k=",
            "trusted.k=",
            "user:1234:rw-",
            "cap_net_raw",
            "default:user:1234:rwx",
        ] {
            assert!(was.contains(wanted), "{kind} has no {wanted}: {was}");
        }
        assert_eq!(told(&back), was, "{kind}");
        // Over what has others, and a folder that exists.
        for line in [
            "setfattr -n user.more -v val",
            "setfacl -m u:77:rwx",
            "chmod 0777",
        ] {
            let mut words = line.split(' ');
            let mut command = Command::new(words.next().expect("a program"));
            command.args(words).args(["folder", "owned"]);
            done(command.current_dir(&back));
        }
        ok(
            &path,
            &format!("{VAULT} restore latest --overwrite --target back"),
        );
        assert_eq!(told(&back), was, "{kind}, over others");
    }
}

/// In a namespace that knows no other user, as containers of users are: modes, times and attributes are set all the same.
#[test]
fn root_an_owner_that_cannot_be_set_keeps_nothing_else_back() {
    if !is_root_test() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path();
    fs::create_dir_all(path.join("tree/below")).expect("folders");
    fs::write(path.join("tree/program"), "#!/bin/sh\n").expect("a file");
    fs::write(path.join("p"), "a password\n").expect("a file");
    let lines = [
        "chown 999:999 tree/below tree/program",
        "chmod 6755 tree/program",
        "chmod 0711 tree/below",
        "setfattr -n user.k -v val tree/program",
        "touch -d 2001-02-03 tree/below tree/program",
    ];
    for line in lines {
        let mut words = line.split(' ');
        let mut command = Command::new(words.next().expect("a program"));
        done(command.args(words).current_dir(path));
    }
    ok(path, &format!("{VAULT} init"));
    ok(path, &format!("{VAULT} add tree"));
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", env!("CARGO_BIN_EXE_breakeven")]);
    command.args([
        "vault", "-r", "v", "-p", "p", "restore", "latest", "-t", "back",
    ]);
    let output = command.current_dir(path).stdin(Stdio::null()).output();
    let output = output.expect("the program starts");
    let said = String::from_utf8_lossy(&output.stdout);
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}{message}");
    assert!(said.contains("restored 1 files of 10 bytes"), "{said}");
    assert!(
        message.contains("the owner 999:999 cannot be set"),
        "{message}"
    );
    let back = path
        .join("back")
        .join(path.strip_prefix("/").expect("a path"));
    for (name, mode) in [("tree/program", 0o755), ("tree/below", 0o711)] {
        let was = fs::metadata(path.join(name)).expect("a file");
        let is = fs::metadata(back.join(name)).expect("a file");
        assert_eq!(is.mode() & 0o7777, mode, "{name}");
        assert_eq!(is.mtime(), was.mtime(), "{name}");
    }
    let program = back.join("tree/program");
    let told = done(Command::new("getfattr").args(["-d"]).arg(program));
    assert!(told.contains("user.k=\"val\""), "{told}");
}

/// A file system that tells of a failed write when a file is closed.
#[test]
fn what_closing_a_restored_file_answers_is_looked_at() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path();
    fs::write(path.join("refuses.c"), REFUSES).expect("a file");
    let mut compile = Command::new("cc");
    compile.args(["-shared", "-fPIC", "-O1", "-o", "refuses.so", "refuses.c"]);
    done(compile.current_dir(path));
    fs::create_dir(path.join("tree")).expect("a folder");
    fs::write(path.join("tree/small"), "sound").expect("a file");
    fs::write(path.join("tree/large"), crate::noise(300_000)).expect("a file");
    fs::write(path.join("p"), "a password\n").expect("a file");
    ok(path, &format!("{VAULT} init"));
    ok(path, &format!("{VAULT} add tree"));
    let library = path.join("refuses.so");
    let library = library.to_str().expect("a path");
    for (more, is_kept) in [("", false), ("--overwrite ", true)] {
        let back = path
            .join("back")
            .join(path.strip_prefix("/").expect("a path"));
        fs::create_dir_all(back.join("tree")).expect("folders");
        if is_kept {
            fs::write(back.join("tree/large"), "a user's own").expect("a file");
        }
        let line = format!("{VAULT} restore latest {more}--target back");
        let output = super::run_with(path, &line, &[("LD_PRELOAD", library)]);
        let said = String::from_utf8_lossy(&output.stdout);
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{said}{message}");
        assert!(said.contains("restored 1 files of 5 bytes"), "{said}");
        assert!(message.contains("tree/large: close"), "{message}");
        let left = fs::read(back.join("tree/large")).ok();
        assert_eq!(left.as_deref(), is_kept.then_some(&b"a user's own"[..]));
        fs::remove_file(back.join("tree/small")).expect("it was restored");
    }
    // Without that, all is well.
    let done = run(
        path,
        &format!("{VAULT} restore latest --overwrite --target back"),
    );
    assert!(done.status.success());
}

/// Cuts files of 300,000 bytes that are closed after they were written, and answers that a quota is exceeded.
const REFUSES: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
int close(int number) {
    struct stat status;
    int is_refused = !fstat(number, &status) && S_ISREG(status.st_mode) && status.st_size == 300000
        && (fcntl(number, F_GETFL) & O_ACCMODE) == O_WRONLY;
    syscall(SYS_close, number);
    if (!is_refused) return 0;
    errno = EDQUOT;
    return -1;
}
"#;

/// A file whose mode was changed, and one that was written.
#[test]
fn why_files_are_read_again_is_said() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path();
    fs::create_dir(path.join("tree")).expect("a folder");
    for name in ["a", "b", "c"] {
        fs::write(path.join("tree").join(name), name).expect("a file");
        let mut touch = Command::new("touch");
        done(
            touch
                .args(["-d", "2001-02-03"])
                .arg(path.join("tree").join(name)),
        );
    }
    done(Command::new("mkfifo").arg(path.join("tree/pipe")));
    fs::write(path.join("p"), "a password\n").expect("a file");
    ok(path, &format!("{VAULT} init"));
    let said = ok(path, &format!("{VAULT} add tree"));
    assert!(!said.contains("read again"), "{said}");
    done(Command::new("chmod").arg("0600").arg(path.join("tree/a")));
    fs::write(path.join("tree/b"), "another").expect("a file");
    let said = ok(path, &format!("{VAULT} add tree"));
    assert!(said.contains("1 of another size or time"), "{said}");
    assert!(
        said.contains("only for their ctime (--ignore-ctime)"),
        "{said}"
    );
    let said = ok(path, &format!("{VAULT} add --ignore-ctime --json tree"));
    assert!(said.contains("\"ctime\":0"), "{said}");
    ok(path, &format!("{VAULT} restore latest --target back"));
    let back = path
        .join("back")
        .join(path.strip_prefix("/").expect("a path"));
    let pipe = fs::symlink_metadata(back.join("tree/pipe")).expect("a pipe");
    assert!(pipe.file_type().is_fifo());
}
