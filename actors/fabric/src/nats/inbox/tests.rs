use super::*;

fn inbox() -> Inbox {
    Inbox::new("_INBOX.a.".into(), Waiting::default())
}

fn answer(subject: &str) -> Message {
    Message {
        subject: subject.into(),
        reply: None,
        payload: "yes".into(),
        headers: None,
        status: None,
        description: None,
        length: 3,
    }
}

#[tokio::test]
async fn an_answer_finds_its_place_once() {
    let inbox = inbox();
    let (first, second) = (inbox.open(), inbox.open());
    assert_ne!(first.subject(), second.subject());
    for subject in [second.subject(), second.subject(), "_INBOX.a.77", "_INBOX.a.x"] {
        inbox.waiting.settle(answer(subject));
    }
    assert_eq!(second.answer().await.unwrap().payload, "yes");
    inbox.waiting.give_up();
    assert!(first.answer().await.is_none());
}

#[tokio::test]
async fn nothing_stays_behind() {
    let inbox = inbox();
    let (given_up, broken, answered) = (inbox.open(), inbox.open(), inbox.open());
    assert_eq!(inbox.waiting.lock().len(), 3);
    drop(given_up);
    let unfinished = broken.answer();
    drop(unfinished);
    inbox.waiting.settle(answer(answered.subject()));
    answered.answer().await.unwrap();
    assert!(inbox.waiting.lock().is_empty());
}
