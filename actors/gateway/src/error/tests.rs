use http_body_util::BodyExt;

use super::*;

#[test]
fn the_envelope_has_every_member() {
    let error = ApiError::invalid("stop", "must be a string, not null");
    assert_eq!(
        String::from_utf8(error.json()).unwrap(),
        r#"{"error":{"message":"stop: must be a string, not null","type":"invalid_request_error","param":"stop","code":"invalid_request"}}"#
    );
    let error = ApiError::from(RequestError::new(ErrorKind::Lost, "decode.0 \"died\""));
    assert_eq!(
        String::from_utf8(error.json()).unwrap(),
        r#"{"error":{"message":"decode.0 \"died\"","type":"server_error","param":null,"code":"instance_lost"}}"#
    );
}

#[test]
fn statuses_follow_the_kind_of_error() {
    let status = |kind| ApiError::from(RequestError::new(kind, "x")).status();
    assert_eq!(status(ErrorKind::Invalid), 400);
    assert_eq!(status(ErrorKind::ContextLength), 400);
    assert_eq!(status(ErrorKind::ModelNotFound), 404);
    assert_eq!(status(ErrorKind::RateLimited), 429);
    assert_eq!(status(ErrorKind::Cancelled), 499);
    assert_eq!(status(ErrorKind::Internal), 500);
    assert_eq!(status(ErrorKind::Overloaded), 503);
    assert_eq!(status(ErrorKind::Lost), 503);
    assert_eq!(status(ErrorKind::Deadline), 504);
}

#[test]
fn waiting_is_advised_in_whole_seconds() {
    let header = |retry_after_ms| {
        let error = RequestError::new(ErrorKind::Overloaded, "full").retry_after(retry_after_ms);
        let response = ApiError::from(error).response();
        response.headers()[RETRY_AFTER].to_str().unwrap().to_owned()
    };
    assert_eq!([header(0), header(1000), header(1001)], ["1", "1", "2"]);
    let has_advice = |kind| {
        let response = ApiError::from(RequestError::new(kind, "x")).response();
        response.headers().contains_key(RETRY_AFTER)
    };
    assert!(
        has_advice(ErrorKind::Overloaded) && has_advice(ErrorKind::Unavailable) && has_advice(ErrorKind::RateLimited)
    );
    assert!(!has_advice(ErrorKind::Invalid) && !has_advice(ErrorKind::Internal));
}

#[tokio::test]
async fn the_answer_is_json_with_the_status_of_the_table() {
    let response = ApiError::new(Fault::MediaType, "no").response();
    assert_eq!(response.status(), 415);
    assert_eq!(response.headers()[CONTENT_TYPE], "application/json");
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert!(body.starts_with(br#"{"error":{"message":"no""#));
}
