//! `cluster chat` against an endpoint that answers from a script.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    sync::mpsc::{Receiver, channel},
    thread,
};

use crate::program::Home;

/// An endpoint that gives one answer to each connection and tells what it was asked: path, key, body.
struct Endpoint {
    url: String,
    asked: Receiver<(String, Option<String>, String)>,
}

impl Endpoint {
    fn start(answers: Vec<String>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (sender, asked) = channel();
        thread::spawn(move || {
            for answer in answers {
                let (mut stream, _) = listener.accept().unwrap();
                sender.send(read_request(&stream)).unwrap();
                stream.write_all(answer.as_bytes()).unwrap();
            }
        });
        Self { url, asked }
    }
}

fn read_request(stream: &TcpStream) -> (String, Option<String>, String) {
    let mut reader = BufReader::new(stream);
    let mut head = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        match line.trim_end() {
            "" => break,
            line => head.push(line.to_owned()),
        }
    }
    let header = |name: &str| {
        head.iter()
            .find_map(|line| Some(line.strip_prefix(name)?.trim().to_owned()))
    };
    let length = header("content-length:").map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    let path = head[0].split(' ').nth(1).unwrap().to_owned();
    (path, header("authorization:"), String::from_utf8(body).unwrap())
}

fn answer(status: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\nconnection: close\r\n\r\n{body}")
}

fn stream(pieces: &[&str]) -> String {
    let chunks = pieces.iter().map(|piece| {
        let chunk = serde_json::json!({ "choices": [{ "index": 0, "delta": { "content": piece } }] });
        format!("data: {chunk}\n\n")
    });
    answer("200 OK", &chunks.collect::<String>())
}

const MODELS: &str = r#"{"object":"list","data":[{"id":"tiny"},{"id":"other"}]}"#;

#[test]
fn one_question_gets_one_answer_from_the_first_model() {
    let done = stream(&["It ", "scatters", "."]) + "data: [DONE]\n\n";
    let endpoint = Endpoint::start(vec![answer("200 OK", MODELS), done]);
    let arguments = [
        "chat",
        "--url",
        &endpoint.url,
        "--system",
        "Be brief.",
        "--temperature",
        "0",
        "Why blue?",
    ];
    assert_eq!(Home::new().cluster(&arguments).ok(), "It scatters.\n");

    assert_eq!(endpoint.asked.recv().unwrap().0, "/v1/models");
    let (path, key, body) = endpoint.asked.recv().unwrap();
    assert_eq!((path.as_str(), key), ("/v1/chat/completions", None));
    let body: serde_json::Value = serde_json::from_str(&body).unwrap();
    let expected = serde_json::json!({
        "model": "tiny",
        "messages": [{ "role": "system", "content": "Be brief." }, { "role": "user", "content": "Why blue?" }],
        "stream": true,
        "temperature": 0.0,
    });
    assert_eq!(body, expected);
}

#[test]
fn the_question_can_come_through_a_pipe() {
    let endpoint = Endpoint::start(vec![stream(&["Yes."]) + "data: [DONE]\n\n"]);
    let arguments = ["chat", "--url", &endpoint.url, "--model", "other", "--max-tokens", "5"];
    assert_eq!(
        Home::new().cluster_with_input(&arguments, "Is it\nblue?\n").ok(),
        "Yes.\n"
    );
    let body: serde_json::Value = serde_json::from_str(&endpoint.asked.recv().unwrap().2).unwrap();
    assert_eq!(body["messages"][0]["content"], "Is it\nblue?");
    assert_eq!((&body["model"], &body["max_tokens"]), (&"other".into(), &5.into()));

    let err = Home::new()
        .cluster_with_input(&["chat", "--model", "other"], " \n")
        .failed(2);
    assert_eq!(err, "error: the question is empty\n");
}

#[test]
fn an_answer_that_breaks_off_is_a_failure() {
    let endpoint = Endpoint::start(vec![stream(&["It sc"])]);
    let done = Home::new().cluster(&["chat", "--url", &endpoint.url, "--model", "tiny", "Why?"]);
    assert_eq!((done.code, done.out.as_str()), (1, "It sc\n"));
    assert_eq!(
        done.err,
        "error: the answer broke off: the connection ended before it\n"
    );
}

#[test]
fn errors_are_told_in_the_servers_words() {
    let refused = answer(
        "503 Service Unavailable",
        r#"{"error":{"message":"every place is taken"}}"#,
    );
    let endpoint = Endpoint::start(vec![refused]);
    let arguments = ["chat", "--url", &endpoint.url, "--model", "tiny", "Why?"];
    assert_eq!(
        Home::new().cluster(&arguments).failed(1),
        "error: every place is taken\n"
    );

    let broken = stream(&["It"]) + "data: {\"error\":{\"message\":\"decode.0 was lost\"}}\n\n";
    let endpoint = Endpoint::start(vec![broken]);
    let done = Home::new().cluster(&["chat", "--url", &endpoint.url, "--model", "tiny", "Why?"]);
    assert_eq!(
        (done.code, done.out.as_str(), done.err.as_str()),
        (1, "It\n", "error: decode.0 was lost\n")
    );
}

#[test]
fn an_endpoint_that_is_not_there_is_named() {
    // Bound and closed again: nobody listens there.
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let err = Home::new()
        .cluster(&["chat", "--url", &format!("http://{closed}"), "Why?"])
        .failed(1);
    assert!(
        err.starts_with(&format!("error: nothing answers at http://{closed}: ")),
        "{err}"
    );
    assert!(err.ends_with("\n  help: start a cluster with 'cluster up FILE', or name its address with --url\n"));
}
