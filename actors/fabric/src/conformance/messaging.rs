//! The suite of [`Messaging`].

use std::{sync::Arc, time::Duration};

use super::{soon, until};
use crate::messaging::{
    Delivery, HEADERS_MAX, Message, Messaging, MessagingError, PAYLOAD_MAX, Subscription, subject::SUBJECT_MAX,
};

type Members = [Arc<dyn Messaging>; 2];

/// Far beyond what a check may take: an answer that needs it shows as a failure of the check's own patience.
const FOREVER: Duration = Duration::from_secs(600);

/// Runs all checks of a message bus. `make` gives two members of a fresh world.
pub async fn messaging(make: impl AsyncFn() -> Members) {
    every_subscriber_gets_what_matches(make().await).await;
    messages_arrive_whole_and_in_order(make().await).await;
    headers_arrive_sorted_by_name(make().await).await;
    a_group_shares_its_messages(make().await).await;
    requests_are_answered(make().await).await;
    the_first_answer_counts(make().await).await;
    nobody_there_is_told_at_once(make().await).await;
    silence_ends_at_the_timeout(make().await).await;
    a_full_subscription_drops_the_newest_and_counts(make().await).await;
    what_no_bus_takes_is_refused(make().await).await;
}

async fn subscribe(member: &Arc<dyn Messaging>, pattern: &str) -> Subscription {
    soon(member.subscribe(pattern, 1024)).await.expect("the bus is there")
}

async fn publish(member: &Arc<dyn Messaging>, subject: &str, payload: &str) {
    let message = Message::new(payload.as_bytes().to_vec());
    soon(member.publish(subject, message)).await.expect("the bus is there");
}

async fn next(subscription: &mut Subscription) -> Delivery {
    soon(subscription.next()).await.expect("the bus stays")
}

fn text(message: &Message) -> &str {
    str::from_utf8(&message.payload).expect("the checks send text")
}

async fn every_subscriber_gets_what_matches([here, there]: Members) {
    let mut one = subscribe(&there, "load.*").await;
    let mut rest = subscribe(&here, "load.>").await;
    let mut exact = subscribe(&there, "load.decode").await;
    for subject in [
        "load",
        "load.decode.0",
        "load.decode",
        "loads.x",
        "load.prefill",
        "load.decode",
    ] {
        publish(&here, subject, subject).await;
    }
    let expected: [(&mut Subscription, &[&str]); 3] = [
        (&mut one, &["load.decode", "load.prefill", "load.decode"]),
        (
            &mut rest,
            &["load.decode.0", "load.decode", "load.prefill", "load.decode"],
        ),
        (&mut exact, &["load.decode", "load.decode"]),
    ];
    for (subscription, subjects) in expected {
        for subject in subjects {
            let delivery = next(subscription).await;
            assert_eq!(
                (delivery.subject.as_str(), text(&delivery.message)),
                (*subject, *subject)
            );
            assert_eq!(delivery.reply, None);
        }
        assert_eq!(subscription.lost(), 0);
    }
}

async fn messages_arrive_whole_and_in_order([here, there]: Members) {
    let mut subscription = subscribe(&there, "events").await;
    let large = Message::new(vec![7; PAYLOAD_MAX])
        .with_header("traceparent", "00-ab-cd-01")
        .with_header("empty", "");
    soon(here.publish("events", large.clone()))
        .await
        .expect("64 KiB are allowed");
    for number in 0..500 {
        publish(&here, "events", &number.to_string()).await;
    }
    assert_eq!(next(&mut subscription).await.message, large);
    for number in 0..500 {
        assert_eq!(text(&next(&mut subscription).await.message), number.to_string());
    }
}

async fn headers_arrive_sorted_by_name([here, there]: Members) {
    let mut subscription = subscribe(&there, "events").await;
    let sent = Message::new("body")
        .with_header("traceparent", "00-ab-cd-01")
        .with_header("baggage", "second: \u{00e4} \u{1f9f5}, \"quoted\"")
        .with_header("zone-2", "")
        .with_header("baggage", "first");
    let names = sent.headers.iter().map(|(name, _)| name.as_str());
    assert!(names.eq(["baggage", "baggage", "traceparent", "zone-2"]));
    assert_eq!(sent.header("baggage"), Some("second: \u{00e4} \u{1f9f5}, \"quoted\""));
    soon(here.publish("events", sent.clone()))
        .await
        .expect("the bus is there");
    assert_eq!(next(&mut subscription).await.message, sent);
}

async fn a_group_shares_its_messages([here, there]: Members) {
    let join = async |member: &Arc<dyn Messaging>| {
        let joined = soon(member.subscribe_group("work.*", "workers", 1024)).await;
        joined.expect("the bus is there")
    };
    let mut workers = [join(&here).await, join(&there).await];
    let mut all = subscribe(&there, "work.a").await;
    for number in 0..100 {
        publish(&here, "work.a", &number.to_string()).await;
    }
    for number in 0..100 {
        assert_eq!(text(&next(&mut all).await.message), number.to_string());
    }
    let mut shares = [Vec::new(), Vec::new()];
    while shares[0].len() + shares[1].len() < 100 {
        let [one, other] = &mut workers;
        let (worker, delivery) = soon(async {
            tokio::select! {
                delivery = one.next() => (0, delivery),
                delivery = other.next() => (1, delivery),
            }
        })
        .await;
        let delivery = delivery.expect("the bus stays");
        shares[worker].push(text(&delivery.message).parse::<u32>().expect("a number"));
    }
    assert!(
        shares.iter().all(|share| !share.is_empty()),
        "one worker had nothing to do"
    );
    let mut done = shares.concat();
    done.sort_unstable();
    assert!(done.into_iter().eq(0..100), "each message goes to exactly one worker");
}

/// Answers every request with its payload and `suffix`.
fn answer_all(
    member: &Arc<dyn Messaging>,
    mut requests: Subscription,
    suffix: &'static str,
) -> tokio::task::JoinHandle<()> {
    let member = member.clone();
    tokio::spawn(async move {
        while let Some(request) = requests.next().await {
            let reply = request.reply.expect("a request says where its answer is awaited");
            publish(&member, &reply, &format!("{}{suffix}", text(&request.message))).await;
        }
    })
}

async fn requests_are_answered([here, there]: Members) {
    let serving = answer_all(&there, subscribe(&there, "ask.*").await, "!");
    for asker in [&here, &there] {
        let asked = (0..50).map(|number| {
            let message = Message::new(number.to_string());
            async move { (number, asker.request("ask.echo", message, FOREVER).await) }
        });
        for (number, answer) in soon(futures::future::join_all(asked)).await {
            assert_eq!(text(&answer.expect("somebody listens")), format!("{number}!"));
        }
    }
    serving.abort();
}

async fn the_first_answer_counts([here, there]: Members) {
    let serving = [
        answer_all(&here, subscribe(&here, "ask").await, "h"),
        answer_all(&there, subscribe(&there, "ask").await, "t"),
    ];
    for number in 0..20 {
        let answer = soon(here.request("ask", Message::new(number.to_string()), FOREVER)).await;
        let answer = answer.expect("somebody listens");
        let (digits, from) = text(&answer).split_at(text(&answer).len() - 1);
        assert_eq!(
            digits,
            number.to_string(),
            "an answer to an earlier request came in its place"
        );
        assert!(["h", "t"].contains(&from));
    }
    serving.iter().for_each(tokio::task::JoinHandle::abort);
}

async fn nobody_there_is_told_at_once([here, there]: Members) {
    let nobody = Err(MessagingError::NoResponders("ask".into()));
    assert_eq!(soon(here.request("ask", Message::default(), FOREVER)).await, nobody);
    let gone = subscribe(&there, "ask").await;
    drop(gone);
    // An end of a subscription takes a moment to get around; until then the request is lost.
    let told = soon(async {
        loop {
            let asked = here.request("ask", Message::default(), Duration::from_millis(50)).await;
            if asked == nobody {
                return;
            }
        }
    });
    told.await;
}

async fn silence_ends_at_the_timeout([here, there]: Members) {
    let mut silent = subscribe(&there, "ask").await;
    let asked = soon(here.request("ask", Message::new("hello"), Duration::from_millis(50))).await;
    let late = MessagingError::Timeout {
        subject: "ask".into(),
        timeout_ms: 50,
    };
    assert_eq!(asked, Err(late));
    let request = next(&mut silent).await;
    let reply = request.reply.expect("a request says where its answer is awaited");
    publish(&there, &reply, "too late, and no harm").await;
}

async fn a_full_subscription_drops_the_newest_and_counts([here, there]: Members) {
    let mut narrow = soon(there.subscribe("events", 8)).await.expect("the bus is there");
    for number in 0..50 {
        publish(&here, "events", &number.to_string()).await;
    }
    until(|| narrow.lost() == 42).await;
    for number in 0..8 {
        assert_eq!(text(&next(&mut narrow).await.message), number.to_string());
    }
    publish(&here, "events", "after").await;
    assert_eq!(
        text(&next(&mut narrow).await.message),
        "after",
        "it goes on once there is room"
    );
    assert_eq!(narrow.lost(), 42);
}

async fn what_no_bus_takes_is_refused([here, _]: Members) {
    let large = Message::new(vec![0; PAYLOAD_MAX + 1]);
    let too_large = MessagingError::TooLarge { len: PAYLOAD_MAX + 1 };
    assert_eq!(
        soon(here.publish("events", large.clone())).await,
        Err(too_large.clone())
    );
    assert_eq!(soon(here.request("events", large, FOREVER)).await, Err(too_large));
    let long = "x".repeat(HEADERS_MAX);
    for (name, value) in [
        ("", "v"),
        ("Name", "v"),
        ("a:b", "v"),
        ("name", " v"),
        ("name", "a\r\nstatus: ok"),
        ("name", &long),
    ] {
        let bad = MessagingError::BadHeader(name.into());
        let message = Message::default().with_header(name, value);
        assert_eq!(soon(here.publish("events", message.clone())).await, Err(bad.clone()));
        assert_eq!(soon(here.request("events", message, FOREVER)).await, Err(bad));
    }
    let long = "a".repeat(SUBJECT_MAX + 1);
    for wrong in ["", "a..b", "a.*", ">", "a b", &long] {
        let bad = MessagingError::BadSubject(wrong.into());
        assert_eq!(soon(here.publish(wrong, Message::default())).await, Err(bad.clone()));
        assert_eq!(soon(here.request(wrong, Message::default(), FOREVER)).await, Err(bad));
    }
    for wrong in ["", "a..b", "a.>.b", "a b", &long] {
        let subscribed = soon(here.subscribe(wrong, 8)).await;
        assert!(matches!(subscribed, Err(MessagingError::BadSubject(_))), "{wrong:?}");
        let joined = soon(here.subscribe_group(wrong, "group", 8)).await;
        assert!(matches!(joined, Err(MessagingError::BadSubject(_))), "{wrong:?}");
    }
    let nameless = soon(here.subscribe_group("events", "", 8)).await;
    assert!(matches!(nameless, Err(MessagingError::BadSubject(_))));
}
