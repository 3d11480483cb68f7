use super::*;

#[test]
fn places_are_bounded_and_come_back() {
    let credits = Credits::new(3, 250);
    let first = credits.try_take().unwrap();
    let rest = credits.try_take_many(2).unwrap();
    assert_eq!(credits.in_use(), 3);
    let refused = credits.try_take().unwrap_err();
    assert_eq!(
        (refused.kind, refused.retry_after_ms),
        (ErrorKind::Overloaded, Some(250))
    );
    drop(rest);
    assert_eq!(credits.in_use(), 1);
    assert!(credits.clone().try_take_many(3).is_err(), "all or none");
    assert_eq!(credits.in_use(), 1);
    drop(first);
    assert_eq!(credits.in_use(), 0);
}

#[test]
fn a_closed_door_lets_nobody_in_and_keeps_count() {
    let credits = Credits::new(2, 250);
    let inside = credits.try_take().unwrap();
    credits.close();
    assert_eq!(credits.try_take().unwrap_err().kind, ErrorKind::Unavailable);
    assert_eq!(credits.in_use(), 1);
    drop(inside);
    assert_eq!(credits.in_use(), 0);
}
