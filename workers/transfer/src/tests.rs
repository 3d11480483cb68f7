use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use cluster_fabric::{Clock, SystemClock};
use cluster_messages::{ActorPath, Deadline, Epoch, Fingerprint, InstanceRef, Role, Ticket, TicketId};
use proptest::prelude::*;

use super::*;

const LAYOUT: Fingerprint = Fingerprint(9);

fn decode(epoch: u64) -> InstanceRef {
    InstanceRef {
        path: ActorPath::new(Role::Decode, 0),
        epoch: Epoch(epoch),
    }
}

fn ticket(id: u128, pages: std::ops::Range<u32>) -> Ticket {
    Ticket {
        id: TicketId(id),
        owner: decode(1),
        first_page: pages.start,
        end_page: pages.end,
        layout: LAYOUT,
        deadline: Deadline(10_000),
    }
}

fn exchange() -> Exchange {
    Exchange::new(Arc::new(SystemClock::starting_at(0)))
}

/// Distinct for each page.
fn content(page: u32) -> Bytes {
    Bytes::from(vec![page as u8; 64])
}

async fn collect(mut inbox: Inbox) -> (Vec<u32>, Result<Proof, TransferError>) {
    let mut pages = Vec::new();
    loop {
        match inbox.next().await {
            Ok(Some(arrived)) => {
                assert_eq!(arrived.bytes, content(arrived.page));
                pages.push(arrived.page);
            }
            Ok(None) => return (pages, Ok(inbox.proof())),
            Err(error) => return (pages, Err(error)),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn pages_arrive_and_both_sides_agree() {
    let exchange = exchange();
    let tickets = exchange.owner(decode(1)).unwrap();
    let inbox = tickets.open(ticket(1, 2..6), 2).unwrap();
    let mut pusher = exchange.transfer().start(ticket(1, 2..6), LAYOUT).unwrap();
    let sending = async {
        for page in [5, 2, 4, 3] {
            pusher.push(page, content(page)).await.unwrap();
        }
        pusher.finish().await
    };
    let (sent, (pages, arrived)) = tokio::join!(sending, collect(inbox));
    assert_eq!(pages, [5, 2, 4, 3]);
    assert_eq!(sent.unwrap(), arrived.unwrap());
    assert_eq!(tickets.open_len(), 0, "a finished ticket is closed");
}

#[tokio::test(start_paused = true)]
async fn nothing_wanted_is_complete_at_once() {
    let exchange = exchange();
    let inbox = exchange.owner(decode(1)).unwrap().open(ticket(1, 3..3), 1).unwrap();
    let pusher = exchange.transfer().start(ticket(1, 3..3), LAYOUT).unwrap();
    let (sent, (_, arrived)) = tokio::join!(pusher.finish(), collect(inbox));
    assert_eq!((sent, arrived), (Ok(Proof::default()), Ok(Proof::default())));
}

#[tokio::test(start_paused = true)]
async fn wrong_pages_are_refused_and_do_no_harm() {
    let exchange = exchange();
    let tickets = exchange.owner(decode(1)).unwrap();
    let mut inbox = tickets.open(ticket(1, 2..4), 8).unwrap();
    let transfer = exchange.transfer();
    let ticket = ticket(1, 2..4);
    let out_of_range = |page| TransferError::OutOfRange {
        page,
        first_page: 2,
        end_page: 4,
    };
    assert_eq!(transfer.push(&ticket, 1, content(1)).await, Err(out_of_range(1)));
    assert_eq!(transfer.push(&ticket, 4, content(4)).await, Err(out_of_range(4)));
    transfer.push(&ticket, 2, content(2)).await.unwrap();
    assert_eq!(
        transfer.push(&ticket, 2, content(2)).await,
        Err(TransferError::Duplicate(2))
    );
    assert_eq!(inbox.next().await.unwrap().unwrap().page, 2);
    assert_eq!(
        transfer.push(&ticket, 2, content(2)).await,
        Err(TransferError::Duplicate(2))
    );
}

#[tokio::test(start_paused = true)]
async fn a_sender_does_not_widen_its_ticket() {
    let exchange = exchange();
    let _inbox = exchange.owner(decode(1)).unwrap().open(ticket(1, 2..4), 8).unwrap();
    let wider = Ticket {
        deadline: Deadline(99_000),
        ..ticket(1, 0..9)
    };
    let refused = exchange.transfer().push(&wider, 7, content(7)).await;
    assert!(
        matches!(refused, Err(TransferError::OutOfRange { end_page: 4, .. })),
        "{refused:?}"
    );
    tokio::time::advance(Duration::from_secs(11)).await;
    let late = exchange.transfer().push(&wider, 2, content(2)).await;
    assert_eq!(late, Err(TransferError::Deadline(TicketId(1))));
}

#[tokio::test(start_paused = true)]
async fn dropping_the_inbox_closes_the_ticket() {
    let exchange = exchange();
    let tickets = exchange.owner(decode(1)).unwrap();
    let inbox = tickets.open(ticket(1, 0..4), 1).unwrap();
    let transfer = exchange.transfer();
    let ticket = ticket(1, 0..4);
    transfer.push(&ticket, 0, content(0)).await.unwrap();
    let mut waiting = Box::pin(transfer.push(&ticket, 1, content(1)));
    tokio::select! {
        biased;
        done = &mut waiting => panic!("the inbox is full, yet {done:?}"),
        () = std::future::ready(()) => {}
    }
    assert_eq!(
        tickets.open(ticket.clone(), 1).unwrap_err(),
        TransferError::AlreadyOpen(ticket.id)
    );
    drop(inbox);
    assert_eq!(
        waiting.await,
        Err(TransferError::Closed(ticket.id)),
        "who waits hears it"
    );
    let late = transfer.push(&ticket, 2, content(2)).await;
    assert_eq!(late, Err(TransferError::Closed(ticket.id)), "a late write is refused");
    assert_eq!(
        transfer.finish(&ticket, 4, 0).await,
        Err(TransferError::Closed(ticket.id))
    );
    assert_eq!(tickets.open_len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_later_life_of_the_owner_refuses_old_tickets() {
    let exchange = exchange();
    let old = exchange.owner(decode(1)).unwrap();
    let mut inbox = old.open(ticket(1, 0..4), 1).unwrap();
    let new = exchange.owner(decode(2)).unwrap();
    let stale = TransferError::Stale {
        owner: decode(1),
        known: Epoch(2),
    };
    assert_eq!(
        exchange.transfer().push(&ticket(1, 0..4), 0, content(0)).await,
        Err(stale.clone())
    );
    assert_eq!(old.open(ticket(2, 0..4), 1).unwrap_err(), stale);
    assert_eq!(exchange.owner(decode(1)).unwrap_err(), stale);
    assert_eq!(inbox.next().await, Err(TransferError::Closed(TicketId(1))));
    assert!(matches!(
        new.open(ticket(3, 0..4), 1),
        Err(TransferError::NotOwner { .. })
    ));
    // The old life's inbox must not close a ticket of the new one that happens to have the same id.
    let same_id = Ticket {
        owner: decode(2),
        ..ticket(1, 0..4)
    };
    let _open = new.open(same_id, 1).unwrap();
    drop(inbox);
    assert_eq!(new.open_len(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_deadline_ends_both_sides() {
    let exchange = exchange();
    let tickets = exchange.owner(decode(1)).unwrap();
    let mut inbox = tickets.open(ticket(1, 0..4), 1).unwrap();
    let transfer = exchange.transfer();
    let ticket = ticket(1, 0..4);
    transfer.push(&ticket, 0, content(0)).await.unwrap();
    let late = Err(TransferError::Deadline(ticket.id));
    assert_eq!(
        transfer.push(&ticket, 1, content(1)).await,
        late,
        "waits for room until the deadline"
    );
    assert_eq!(inbox.next().await, late.clone().map(|()| None), "whatever has arrived");
    assert_eq!(inbox.next().await, late.map(|()| None), "the end stays the same");
    assert_eq!(
        tickets.open_len(),
        0,
        "the ticket is closed while its inbox is still held"
    );
}

#[tokio::test(start_paused = true)]
async fn a_push_that_is_dropped_while_it_waits_moves_nothing() {
    let exchange = exchange();
    let mut inbox = exchange.owner(decode(1)).unwrap().open(ticket(1, 0..2), 1).unwrap();
    let mut pusher = exchange.transfer().start(ticket(1, 0..2), LAYOUT).unwrap();
    pusher.push(0, content(0)).await.unwrap();
    let gave_up = tokio::time::timeout(Duration::from_millis(5), pusher.push(1, content(1))).await;
    assert!(gave_up.is_err());
    assert_eq!(inbox.next().await.unwrap().unwrap().page, 0);
    pusher.push(1, content(1)).await.expect("the page was not taken before");
    let (sent, (pages, _)) = tokio::join!(pusher.finish(), collect(inbox));
    assert_eq!((sent.unwrap().pages, pages), (2, vec![1]));
}

#[tokio::test(start_paused = true)]
async fn a_sender_that_stops_early_is_incomplete() {
    let exchange = exchange();
    let inbox = exchange.owner(decode(1)).unwrap().open(ticket(1, 0..2), 4).unwrap();
    let mut pusher = exchange.transfer().start(ticket(1, 0..2), LAYOUT).unwrap();
    pusher.push(1, content(1)).await.unwrap();
    let (sent, (_, arrived)) = tokio::join!(pusher.finish(), collect(inbox));
    assert!(
        matches!(sent, Err(TransferError::Incomplete { wanted: 2, .. })),
        "{sent:?}"
    );
    assert_eq!(sent, arrived);
}

#[tokio::test(start_paused = true)]
async fn swapped_pages_are_noticed() {
    let exchange = exchange();
    let mut inbox = exchange.owner(decode(1)).unwrap().open(ticket(1, 0..2), 4).unwrap();
    let (transfer, ticket) = (exchange.transfer(), ticket(1, 0..2));
    let mut claimed = Proof::default();
    for page in 0..2 {
        claimed.add(page, &content(page));
        transfer.push(&ticket, page, content(1 - page)).await.unwrap();
        inbox.next().await.unwrap().unwrap();
    }
    let finishing = transfer.finish(&ticket, claimed.pages, claimed.digest);
    let (sent, arrived) = tokio::join!(finishing, inbox.next());
    assert!(matches!(sent, Err(TransferError::Incomplete { .. })), "{sent:?}");
    assert_eq!(arrived, sent.map(|()| None));
}

#[tokio::test(start_paused = true)]
async fn nothing_follows_the_end() {
    let exchange = exchange();
    let mut inbox = exchange.owner(decode(1)).unwrap().open(ticket(1, 0..2), 8).unwrap();
    let (transfer, ticket) = (exchange.transfer(), ticket(1, 0..2));
    let closed = Err(TransferError::Closed(ticket.id));
    transfer.push(&ticket, 0, content(0)).await.unwrap();
    let finishing = transfer.finish(&ticket, 2, 0);
    let afterwards = async {
        assert_eq!(transfer.push(&ticket, 1, content(1)).await, closed);
        assert_eq!(transfer.finish(&ticket, 2, 0).await, closed);
        inbox.next().await.unwrap();
        inbox.next().await.unwrap_err()
    };
    let (finished, found) = tokio::join!(biased; finishing, afterwards);
    assert_eq!(finished, Err(found));
}

#[test]
fn another_layout_is_refused_before_anything_moves() {
    let refused = exchange()
        .transfer()
        .start(ticket(1, 0..2), Fingerprint(8))
        .unwrap_err();
    assert!(matches!(refused, TransferError::Layout { .. }));
    let backwards = ticket(1, 0..0);
    let backwards = Ticket {
        first_page: 5,
        ..backwards
    };
    let opened = exchange().owner(decode(1)).unwrap().open(backwards, 1);
    assert!(matches!(opened, Err(TransferError::BadRange { .. })));
}

/// What became of a page on its way.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Fate {
    Arrives,
    Lost,
    Damaged,
    Repeated,
}

fn fates() -> impl Strategy<Value = Vec<(u32, Fate)>> {
    let fate = prop_oneof![
        8 => Just(Fate::Arrives),
        1 => Just(Fate::Lost),
        1 => Just(Fate::Damaged),
        1 => Just(Fate::Repeated),
    ];
    prop::collection::vec(fate, 0..12)
        .prop_map(|fates| {
            fates
                .into_iter()
                .enumerate()
                .map(|(page, fate)| (page as u32, fate))
                .collect::<Vec<_>>()
        })
        .prop_shuffle()
}

/// Sends all pages but for their fates, claiming that all went well.
async fn send(transfer: &Transfer, ticket: &Ticket, fates: &[(u32, Fate)]) -> Result<(), TransferError> {
    let mut claimed = Proof::default();
    for (page, fate) in fates {
        claimed.add(*page, &content(*page));
        match fate {
            Fate::Arrives => transfer.push(ticket, *page, content(*page)).await?,
            Fate::Damaged => transfer.push(ticket, *page, content(*page + 1)).await?,
            Fate::Lost => {}
            Fate::Repeated => {
                transfer.push(ticket, *page, content(*page)).await?;
                let again = transfer.push(ticket, *page, content(*page)).await;
                assert_eq!(again, Err(TransferError::Duplicate(*page)));
            }
        }
    }
    transfer.finish(ticket, claimed.pages, claimed.digest).await
}

proptest! {
    /// In whatever order pages arrive, the transfer is complete exactly when none was lost or damaged, and both sides say
    /// the same.
    #[test]
    fn complete_exactly_when_every_page_arrived(fates in fates(), capacity in 1usize..4) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let (sent, received) = runtime.block_on(async {
            let exchange = exchange();
            let ticket = ticket(1, 0..fates.len() as u32);
            let mut inbox = exchange.owner(decode(1)).unwrap().open(ticket.clone(), capacity).unwrap();
            let transfer = exchange.transfer();
            let receiving = async {
                loop {
                    match inbox.next().await {
                        Ok(Some(_)) => {}
                        Ok(None) => return Ok(()),
                        Err(error) => return Err(error),
                    }
                }
            };
            tokio::join!(send(&transfer, &ticket, &fates), receiving)
        });
        let intact = fates.iter().all(|(_, fate)| matches!(fate, Fate::Arrives | Fate::Repeated));
        prop_assert_eq!(&sent, &received);
        prop_assert_eq!(intact, sent.is_ok(), "{:?}", sent);
        let incomplete = matches!(sent, Err(TransferError::Incomplete { .. }));
        prop_assert!(intact || incomplete);
    }
}

#[tokio::test(start_paused = true)]
async fn an_open_ticket_outlives_everything_but_its_deadline() {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::starting_at(0));
    let exchange = Exchange::new(clock.clone());
    let mut inbox = exchange.owner(decode(1)).unwrap().open(ticket(1, 0..1), 1).unwrap();
    assert_eq!(inbox.next().await, Err(TransferError::Deadline(TicketId(1))));
    assert_eq!(clock.now(), 10_000);
}
