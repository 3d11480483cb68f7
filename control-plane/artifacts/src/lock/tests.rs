use std::{
    sync::{Mutex, mpsc},
    thread,
};

use super::*;

/// Reports each note over a channel, so that a test can wait for it.
struct Notes(Mutex<mpsc::Sender<String>>);

impl Progress for Notes {
    fn start(&self, _step: &str, _total: Option<u64>) {}
    fn position(&self, _bytes: u64) {}
    fn finish(&self) {}
    fn note(&self, line: &str) {
        self.0.lock().unwrap().send(line.into()).unwrap();
    }
}

#[test]
fn the_second_waits_for_the_first_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.lock");
    let first = Lock::acquire(&path, &crate::Silent).unwrap();

    let (sender, notes) = mpsc::channel();
    let second = thread::spawn(move || Lock::acquire(&path, &Notes(Mutex::new(sender))).map(drop));
    let note = notes.recv().unwrap();
    assert_eq!(
        note,
        format!("process {} is fetching the same file; waiting for it", process::id())
    );
    drop(first);
    second.join().unwrap().unwrap();
}
