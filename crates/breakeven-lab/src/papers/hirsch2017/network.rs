//! Sockets in the place of the virtual link: TCP through a pair of virtual interfaces that the kernel's
//! token bucket slows down, and TCP to this machine itself.
//!
//! The far end lives in a network namespace of its own and reads into nowhere. That wants root and
//! Debian's iproute2; without them the slowed cells are left out, and the page says so by not having
//! them.

use std::fs;
use std::io::{self, BufRead, BufReader, IoSlice, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use breakeven::stream::{Container, Goal};
use breakeven::units::BytesPerSecond;

use super::bench::{Bench, Contender, Regime};
use super::corpus::{File, Input};
use super::costs::{self, Costs};
use super::fastest::{self, S1};
use super::judge;
use super::plan::{self, Planned};
use super::race::{self, COLUMNS, DRAINED_SECONDS, Race, Way};
use crate::experiment::{Experiment, no_pictures};
use crate::laboratory::{Finding, Laboratory};
use crate::record::{CellRecord, Row, Unfinished};
use crate::statistics::Target;

pub const RECORD: &str = "hirsch2017/network";
const S1_UNTOLD: &str = "S1 untold";
const LOOPBACK: &str = "loopback";
/// The beginning of a namespace's name, before the number of its process.
const NAMESPACE: &str = "breakeven-lab-";

pub const EXPERIMENT: Experiment = Experiment {
    key: RECORD,
    claim: "Through real sockets, too, the controller is never more than 2 % slower than the best static method.",
    source: "Hirsch 2017, section 5.3, which has a timer in the place of a network",
    figure: "time until the far end has the last byte, over that of the best static method,",
    target: Target {
        low: 0.0,
        high: 1.02,
    },
    parameters: &[
        (
            "links",
            "TCP through a veth pair with tc's token bucket filter at beta 43 and 4.2 (root and iproute2 only), and \
             TCP to the machine itself with nothing to slow it",
        ),
        (
            "data and pipeline",
            "text, and rows in which all five kinds take turns every 16 MiB; the writer of hirsch2017/fastest, portable container",
        ),
        (
            "contenders",
            "S1 with the given link's speed, S1 that measures it (the only one through the machine itself), and the \
             best two static methods by arithmetic",
        ),
        (
            "runs",
            "10 (quick: 3, to the machine itself only) of about 1 s; 10 s with --paper-size",
        ),
    ],
    analysis: "The kernel takes the time of the same two processors, more for each byte sent, so data that shrink gain \
        twice. A token bucket and a socket's buffer let the first MiB through at once. So a controller that measures \
        its link sees a fast one first. An unslowed socket has no speed of its own; it is as fast as both ends have \
        time for it.",
    run: |laboratory| Ok(findings(&measure(laboratory)?)),
    table: |records| race::table(records, RECORD, findings),
    pictures: no_pictures,
};

/// A far end and the way to it.
pub struct Network {
    far: SocketAddr,
    receiver: Child,
    /// The interface that is slowed, and its namespace.
    slowed: Option<Slowed>,
}

struct Slowed {
    interface: String,
    namespace: String,
}

/// Returns why there can be no slowed network here.
pub fn obstacle() -> Option<&'static str> {
    let has = |program: &str| {
        let mut tried = Command::new(program);
        tried.arg("-V").stdout(Stdio::null()).stderr(Stdio::null());
        tried.status().is_ok_and(|status| status.success())
    };
    if !rustix::process::geteuid().is_root() {
        Some("that wants root")
    } else if !has("ip") || !has("tc") {
        Some("that wants ip and tc (Debian: iproute2)")
    } else {
        None
    }
}

fn call(words: &[&str]) -> Result<()> {
    let output = Command::new(words[0]).args(&words[1..]).output();
    let output = output.with_context(|| format!("start {}", words[0]))?;
    ensure!(
        output.status.success(),
        "'{}': {}",
        words.join(" "),
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(())
}

/// Returns the process that made a namespace, if it was one of ours and is gone.
fn leftover_of(namespace: &str) -> Option<u32> {
    let process: u32 = namespace.strip_prefix(NAMESPACE)?.parse().ok()?;
    // A process that was killed but not yet waited for has a folder there, but no program.
    let program = fs::read_link(format!("/proc/{process}/exe"));
    program.is_err().then_some(process)
}

impl Slowed {
    const NEAR: &'static str = "10.213.77.1";
    const FAR: &'static str = "10.213.77.2";

    /// Names the objects that a process has made; they go when this does.
    fn of(process: u32) -> Slowed {
        Slowed {
            interface: format!("blv{process}"),
            namespace: format!("{NAMESPACE}{process}"),
        }
    }

    /// Removes the leftovers of killed runs, whose addresses the next run needs.
    fn remove_leftovers() {
        let entries = fs::read_dir("/run/netns").into_iter().flatten().flatten();
        for entry in entries {
            let process = leftover_of(&entry.file_name().to_string_lossy());
            drop(process.map(Slowed::of));
        }
    }

    fn new() -> Result<Slowed> {
        Slowed::remove_leftovers();
        let slowed = Slowed::of(std::process::id());
        // From here on everything made goes when `slowed` does.
        let (near, space) = (&slowed.interface, &slowed.namespace);
        let (near_net, far_net) = (
            format!("{}/30", Slowed::NEAR),
            format!("{}/30", Slowed::FAR),
        );
        let commands: [&[&str]; 7] = [
            &["ip", "netns", "add", space],
            &[
                "ip", "link", "add", near, "type", "veth", "peer", "name", "far", "netns", space,
            ],
            &["ip", "addr", "add", &near_net, "dev", near],
            &["ip", "link", "set", near, "up"],
            &["ip", "-n", space, "addr", "add", &far_net, "dev", "far"],
            &["ip", "-n", space, "link", "set", "far", "up"],
            &["ip", "-n", space, "link", "set", "lo", "up"],
        ];
        for command in commands {
            call(command)?;
        }
        Ok(slowed)
    }

    fn shape(&self, speed: BytesPerSecond) -> Result<()> {
        /// The kernel fills the bucket once a tick.
        const TICKS: f64 = 100.0;
        const BURST_MIN: f64 = (128 << 10) as f64;
        let rate = format!("{:.0}bit", 8.0 * speed.0);
        let burst = format!("{:.0}", (speed.0 / TICKS).max(BURST_MIN));
        call(&[
            "tc",
            "qdisc",
            "replace",
            "dev",
            &self.interface,
            "root",
            "tbf",
            "rate",
            &rate,
            "burst",
            &burst,
            "latency",
            "20ms",
        ])
    }
}

impl Drop for Slowed {
    fn drop(&mut self) {
        // An interface that was not made cannot be removed; nothing is left either way.
        let _ = call(&["ip", "link", "del", &self.interface]);
        let _ = call(&["ip", "netns", "del", &self.namespace]);
    }
}

impl Network {
    /// Starts a far end on this machine.
    pub fn loopback() -> Result<Network> {
        Network::start(&[], "127.0.0.1", None)
    }

    /// Starts a far end behind a link that can be slowed.
    pub fn slowed() -> Result<Network> {
        let slowed = Slowed::new()?;
        let namespace = slowed.namespace.clone();
        let prefix = ["ip", "netns", "exec", &namespace];
        Network::start(&prefix, Slowed::FAR, Some(slowed))
    }

    fn start(prefix: &[&str], address: &str, slowed: Option<Slowed>) -> Result<Network> {
        let program = std::env::current_exe().context("find this program")?;
        let program = program.to_string_lossy().into_owned();
        let own = [&program, "stream", "receive", address];
        let words: Vec<&str> = prefix.iter().copied().chain(own).collect();
        let mut receiver = Command::new(words[0])
            .args(&words[1..])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("start '{}'", words.join(" ")))?;
        let mut line = String::new();
        let output = receiver.stdout.take().context("a pipe")?;
        BufReader::new(output).read_line(&mut line)?;
        let far = line.trim().parse();
        Ok(Network {
            far: far.with_context(|| format!("'{}' listens at '{line}'", words.join(" ")))?,
            receiver,
            slowed,
        })
    }

    /// Makes the link so fast.
    pub fn shape(&self, speed: BytesPerSecond) -> Result<()> {
        self.slowed.as_ref().map_or(Ok(()), |it| it.shape(speed))
    }

    pub fn sender(&self) -> Result<Sender> {
        let socket = TcpStream::connect(self.far).context("connect to the far end")?;
        socket.set_nodelay(true)?;
        Ok(Sender { socket })
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        // It ends when its standard input does; killed, it ends for certain.
        let _ = self.receiver.kill();
        let _ = self.receiver.wait();
    }
}

/// A connection to the far end; flushed when the far end has everything.
pub struct Sender {
    socket: TcpStream,
}

impl Write for Sender {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.socket.write(bytes)
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.socket.write_vectored(slices)
    }

    /// Ends the stream and waits for the far end to say that it has read all.
    fn flush(&mut self) -> io::Result<()> {
        self.socket.shutdown(Shutdown::Write)?;
        self.socket.read_exact(&mut [0])
    }
}

/// The far end: prints its address, reads each connection to its end and answers with a byte, until its own standard
/// input ends.
pub fn receive(address: &str) -> Result<()> {
    let listener = TcpListener::bind((address, 0)).context("listen")?;
    println!("{}", listener.local_addr()?);
    // The parent holds the other end of its standard input, and lets go when it is gone.
    std::thread::spawn(|| {
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        std::process::exit(0);
    });
    let mut piece = vec![0; 1 << 18];
    loop {
        let (mut socket, _) = listener.accept()?;
        // A sender that goes away early is its own affair.
        let end = loop {
            match socket.read(&mut piece) {
                Ok(0) => break Ok(()),
                Ok(_) => {}
                Err(error) => break Err(error),
            }
        };
        if end.is_ok() {
            let _ = socket.write_all(&[1]);
        }
    }
}

/// Returns the cells: input and, where the link is slowed, beta.
fn plans(laboratory: &Laboratory) -> Vec<(Input, Option<f64>)> {
    let (text, mixed) = (Input::Plain(File::Text), Input::Mixed(16));
    if laboratory.quick {
        return vec![(text, None)];
    }
    let mut plans = vec![(text, None), (mixed, None)];
    match obstacle() {
        Some(obstacle) => eprintln!("{RECORD}: no slowed links: {obstacle}"),
        None => {
            for input in [text, mixed] {
                plans.extend([(input, Some(43.0)), (input, Some(4.2))]);
            }
        }
    }
    plans
}

fn measure(laboratory: &Laboratory) -> Result<Vec<CellRecord>> {
    let bench = Bench::new(laboratory)?;
    let costs = costs::measure(laboratory, &bench)?;
    let (runs, seconds) = plan::runs(laboratory, (3, 0.02), 1.0);
    let plan = |(input, beta): (Input, Option<f64>)| {
        let link = beta.map_or(LOOPBACK.to_string(), |beta| format!("beta {beta}"));
        let word = link.replace(' ', "=");
        Planned {
            plan: (input, beta),
            name: format!("{input} {link}"),
            input,
            parameters: format!("{word} runs={runs} seconds={seconds}"),
        }
    };
    let plans = plans(laboratory).into_iter().map(plan).collect();
    bench.measure(laboratory, (RECORD, COLUMNS), plans, |plan, kept| {
        race(&bench, &costs, plan, (seconds, runs), kept)
    })
}

fn race(
    bench: &Bench,
    costs: &Costs,
    (input, beta): (Input, Option<f64>),
    (seconds, runs): (f64, usize),
    kept: Unfinished,
) -> Result<Vec<Row>> {
    let network = match beta {
        Some(_) => Network::slowed()?,
        None => Network::loopback()?,
    };
    // A socket to the machine itself is about as fast as LZ4.
    let regime_beta = beta.unwrap_or(1.0);
    let known = costs.known(input, bench.corpus.shape, Container::Portable.arms());
    let told = Contender::goal(S1, Goal::Fastest, Container::Portable);
    let untold = Contender::goal(S1, Goal::Fastest, Container::Portable).untold(S1_UNTOLD);
    let ours = match beta {
        Some(_) => vec![told, untold],
        None => vec![untold],
    };
    let choose = || Ok(known.statics(160, &bench.regime(regime_beta)?));
    let contenders = fastest::against_statics(ours, 2, &kept, choose)?;
    let blocks = |regime: &Regime| known.blocks_in(seconds, regime);
    let race = Race {
        way: Way::Socket(&network),
        ..Race::behind(bench, (input, regime_beta, runs), contenders, blocks)
    };
    race.run(kept)
}

fn findings(cells: &[CellRecord]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for cell in cells {
        let Some(best) = race::best_static(cell) else {
            continue;
        };
        let seconds = |name: &str| race::median(cell, name, DRAINED_SECONDS);
        let all = race::contenders(cell).into_iter();
        for name in all.filter(|name| name.starts_with(S1)) {
            let found = race::over(cell, name, best, DRAINED_SECONDS);
            let is_core = name == S1 || cell.cell.ends_with(LOOPBACK);
            let note = format!("{:.3} s, {best} {:.3} s", seconds(name), seconds(best));
            let question = format!("{} {name}", cell.cell);
            findings.push(judge(&EXPERIMENT, question, is_core, found, note));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_gone_processes_left_is_removed() {
        let check = |namespace: &str, expected: Option<u32>| {
            assert_eq!(leftover_of(namespace), expected, "{namespace}");
        };
        // No process has a number above 4,194,304.
        check("breakeven-lab-4194305", Some(4_194_305));
        check(&format!("{NAMESPACE}{}", std::process::id()), None);
        check("breakeven-lab-", None);
        check("breakeven-lab-1x", None);
        check("somebody-4194305", None);
    }

    #[test]
    fn the_far_end_reads_to_the_end_and_says_so() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let far = listener.local_addr().unwrap();
        let reading = std::thread::spawn(move || {
            let (mut socket, _) = listener.accept().unwrap();
            let mut all = Vec::new();
            socket.read_to_end(&mut all).unwrap();
            socket.write_all(&[1]).unwrap();
            all
        });
        let mut sender = Sender {
            socket: TcpStream::connect(far).unwrap(),
        };
        sender.write_all(&[7; 100_000]).unwrap();
        sender.flush().unwrap();
        assert_eq!(reading.join().unwrap(), [7; 100_000]);
    }
}
