//! Lines typed at the terminal. A thread waits for them, because a read of standard input cannot be cancelled.

use std::{io, thread};

use tokio::sync::mpsc::{self, Receiver};

pub(super) struct Keyboard {
    lines: Receiver<String>,
}

impl Keyboard {
    pub(super) fn start() -> Self {
        let (sender, lines) = mpsc::channel(1);
        thread::spawn(move || {
            for line in io::stdin().lines().map_while(Result::ok) {
                if sender.blocking_send(line).is_err() {
                    return;
                }
            }
        });
        Self { lines }
    }

    /// The next line; none when the input has ended.
    pub(super) async fn line(&mut self) -> Option<String> {
        self.lines.recv().await
    }
}
