//! Running the program with a home folder of its own.

use std::{
    fs,
    io::Write,
    path::PathBuf,
    process::{Command, Stdio},
};

/// A home folder, and the program run in it.
pub(crate) struct Home {
    folder: tempfile::TempDir,
}

/// What a run of the program came to.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Home {
    pub(crate) fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    pub(crate) fn path(&self, rest: &str) -> PathBuf {
        self.folder.path().join(rest)
    }

    pub(crate) fn write(&self, rest: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(rest);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        path
    }

    /// Runs `cluster` in the home folder with nothing on standard input.
    pub(crate) fn cluster(&self, arguments: &[&str]) -> Done {
        self.cluster_with_input(arguments, "")
    }

    /// The program in the home folder, with no environment but a home.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let home = self.folder.path();
        let mut command = Command::new(env!("CARGO_BIN_EXE_cluster"));
        command.args(arguments).current_dir(home).env_clear().env("HOME", home);
        command
    }

    pub(crate) fn cluster_with_input(&self, arguments: &[&str], input: &str) -> Done {
        let mut child = self
            .command(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // A program that does not read its input may be gone already.
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        let output = child.wait_with_output().unwrap();
        Done {
            code: output.status.code().unwrap(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

impl Done {
    /// The standard output of a run that must have gone well.
    pub(crate) fn ok(self) -> String {
        assert_eq!((self.code, self.err.as_str()), (0, ""), "{}", self.out);
        self.out
    }

    /// The standard error of a run that must have ended with `code` and said nothing else.
    pub(crate) fn failed(self, code: i32) -> String {
        assert_eq!((self.code, self.out.as_str()), (code, ""), "{}", self.err);
        self.err
    }
}
