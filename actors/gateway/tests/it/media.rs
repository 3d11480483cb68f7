//! Pictures and sounds in requests: sent along, or fetched from a town of servers that pretend to be outside.

use std::{
    collections::HashMap,
    io,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use base64::{Engine, prelude::BASE64_STANDARD};
use bytes::Bytes;
use cluster_gateway::{Gateway, HostRules, Limits, MediaLimits, Network, Settings, TextStream};
use cluster_messages::{Content, MediaFile, MediumKind, Part, TextInput};
use cluster_telemetry::Metrics;
use futures::stream;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::Instant,
};

use crate::harness::{Counting, Fake, short_answer};

/// An address on the public internet; the town lets a loopback server answer for it.
const OUTSIDE: &str = "1.2.3.4";

/// Names, and the one server behind all outside addresses. Notes every connection it is asked for.
struct Town {
    names: HashMap<&'static str, Vec<IpAddr>>,
    server: SocketAddr,
    asked: Mutex<Vec<SocketAddr>>,
}

#[async_trait]
impl Network for Town {
    async fn resolve(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        self.names
            .get(host)
            .cloned()
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    async fn connect(&self, address: SocketAddr) -> io::Result<TcpStream> {
        self.asked.lock().unwrap().push(address);
        TcpStream::connect(self.server).await
    }
}

/// A server that answers each path with the whole of an HTTP answer; then it closes.
async fn serve(answers: Vec<(&'static str, Vec<u8>)>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = vec![stream.read_u8().await.unwrap()];
            if head != b"G" {
                // A greeting of TLS, which this server does not speak.
                continue;
            }
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await.unwrap());
            }
            let head = String::from_utf8(head).unwrap().to_ascii_lowercase();
            assert!(
                head.contains("accept-encoding: identity\r\n") && head.contains("host: "),
                "{head}"
            );
            let path = head.split(' ').nth(1).unwrap();
            let answer = answers.iter().find(|(other, _)| *other == path);
            // The client may have hung up on an answer that is too long.
            let _ = stream.write_all(answer.map_or(b"", |(_, answer)| answer)).await;
        }
    });
    address
}

fn file(bytes: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", bytes.len());
    [head.as_bytes(), bytes].concat()
}

fn redirect(location: &str) -> Vec<u8> {
    format!("HTTP/1.1 302 Found\r\nlocation: {location}\r\ncontent-length: 0\r\n\r\n").into_bytes()
}

/// The header of a PNG, which is all that the gateway reads.
fn png(width: u32, height: u32) -> Vec<u8> {
    let mut png = b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR".to_vec();
    png.extend(width.to_be_bytes());
    png.extend(height.to_be_bytes());
    png.extend([8, 2, 0, 0, 0, 0, 0, 0, 0]);
    png
}

fn wav(samples: u32) -> Vec<u8> {
    let mut wav = b"RIFF\0\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0".to_vec();
    wav.extend(24_000_u32.to_le_bytes());
    wav.extend(24_000_u32.to_le_bytes());
    wav.extend([1, 0, 8, 0]);
    wav.extend(b"data");
    wav.extend(samples.to_le_bytes());
    wav.resize(wav.len() + samples as usize, 128);
    wav
}

fn data_url(bytes: &[u8]) -> String {
    format!("data:image/jpeg;base64,{}", BASE64_STANDARD.encode(bytes))
}

fn image(url: &str) -> Value {
    json!({"type": "image_url", "image_url": {"url": url, "detail": "auto"}})
}

struct Asked {
    status: u16,
    body: Value,
    /// The media that the frontend was given.
    media: Vec<MediaFile>,
    connections: Vec<SocketAddr>,
}

impl Asked {
    #[track_caller]
    fn refused(&self, param: &str, rule: &str) {
        let error = &self.body["error"];
        assert_eq!((self.status, error["param"].as_str()), (400, Some(param)), "{error}");
        let message = error["message"].as_str().unwrap();
        assert!(message.starts_with(param) && message.contains(rule), "{message}");
        assert!(!message.contains("SECRET"), "{message}");
    }
}

/// A gateway in a town.
struct Scene {
    town: Arc<Town>,
    limits: MediaLimits,
}

impl Scene {
    async fn new(answers: Vec<(&'static str, Vec<u8>)>) -> Self {
        let server = serve(answers).await;
        let addresses = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
        let names = HashMap::from([
            ("pictures.test", addresses(&[OUTSIDE])),
            ("inside.test", addresses(&["10.0.0.1"])),
            ("both.test", addresses(&[OUTSIDE, "::1"])),
            ("empty.test", addresses(&[])),
        ]);
        let rules = [
            "pictures.test",
            "inside.test",
            "both.test",
            "empty.test",
            "lost.test",
            "127.0.0.1",
        ];
        let rules = rules.map(|rule| rule.parse().unwrap()).to_vec();
        Self {
            town: Arc::new(Town {
                names,
                server,
                asked: Mutex::default(),
            }),
            limits: MediaLimits {
                allowed_hosts: HostRules::new(rules),
                ..MediaLimits::default()
            },
        }
    }

    async fn ask(&self, parts: &[Value]) -> Asked {
        let (fake, _drops) = Fake::new(|_| Ok(TextStream::new(stream::iter(short_answer()))));
        let settings = Settings {
            limits: Limits {
                media: self.limits.clone(),
                ..Limits::default()
            },
            ..Settings::default()
        };
        let environment = Arc::new(Counting::default());
        let gateway = Gateway::with_network(settings, fake.clone(), Metrics::new(), environment, self.town.clone());
        let body = json!({"model": "tiny", "messages": [{"role": "user", "content": parts}]}).to_string();
        let request = Request::post("/v1/chat/completions").body(Full::new(Bytes::from(body)));
        let response = gateway.handle(request.unwrap()).await;
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let media = fake
            .requests
            .lock()
            .unwrap()
            .iter()
            .flat_map(|request| media_of(&request.input))
            .collect();
        Asked {
            status,
            body: serde_json::from_slice(&body).unwrap(),
            media,
            connections: std::mem::take(&mut *self.town.asked.lock().unwrap()),
        }
    }
}

fn media_of(input: &TextInput) -> Vec<MediaFile> {
    let TextInput::Chat(chat) = input else {
        panic!("a chat");
    };
    let contents = chat.messages.iter().filter_map(|message| message.content.as_ref());
    let parts = contents.flat_map(|content| match content {
        Content::Parts(parts) => parts.clone(),
        Content::Text(_) => vec![],
    });
    let media = parts.filter_map(|part| match part {
        Part::Media(file) => Some(file),
        Part::Text(_) => None,
    });
    media.collect()
}

#[tokio::test]
async fn files_that_come_with_the_request_are_handed_on_as_they_are() {
    let scene = Scene::new(vec![]).await;
    let sound =
        json!({"type": "input_audio", "input_audio": {"data": BASE64_STANDARD.encode(wav(5)), "format": "wav"}});
    let text = json!({"type": "text", "text": "What is it?"});
    let short = json!({"type": "image", "image": data_url(&png(3, 4))});
    let asked = scene.ask(&[image(&data_url(&png(20, 30))), text, sound, short]).await;
    assert_eq!(asked.status, 200, "{}", asked.body);
    let media = |kind, bytes: Vec<u8>| MediaFile {
        kind,
        bytes: bytes.into(),
    };
    let expected = [
        media(MediumKind::Image, png(20, 30)),
        media(MediumKind::Audio, wav(5)),
        media(MediumKind::Image, png(3, 4)),
    ];
    assert_eq!(asked.media, expected);
}

#[tokio::test]
async fn files_that_cannot_be_taken_are_refused_by_their_header() {
    let mut scene = Scene::new(vec![]).await;
    scene.limits.bytes_max = 1000;
    for (url, rule) in [
        (
            data_url(&png(20_000, 20_000)),
            "20000 x 20000 pixels are too many; at most 40000000",
        ),
        (data_url(&png(1 << 31, 1 << 31)), "damaged PNG"),
        (data_url(&png(0, 5)), "no pixels"),
        (data_url(b"<svg/>"), "send PNG, JPEG, WebP or GIF"),
        (data_url(&wav(5)), "send PNG, JPEG, WebP or GIF"),
        (data_url(&[0; 1001]), "1001 bytes are too many; at most 1000"),
        ("data:image/png;base64,A".to_owned(), "not valid base64"),
        ("data:image/png".to_owned(), "without a comma"),
    ] {
        scene.ask(&[image(&url)]).await.refused("messages[0].content[0]", rule);
    }
    for (part, rule) in [
        (json!({"type": "image_url"}), "has no image_url"),
        (json!({"type": "image_url", "image_url": {}}), "has no url"),
        (json!({"type": "image_url", "image_url": 5}), "must be a string"),
        (
            json!({"type": "video_url", "video_url": {"url": "data:,"}}),
            "videos are not supported",
        ),
        (json!({"type": "file", "file": {}}), "use text, image_url"),
        (
            json!({"type": "input_audio", "input_audio": {"format": "wav"}}),
            "has no data",
        ),
        (
            json!({"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}),
            "send WAV",
        ),
    ] {
        scene.ask(&[part]).await.refused("messages[0].content[0]", rule);
    }
    let mp3 = json!({"type": "input_audio", "input_audio": {"data": "", "format": "mp3"}});
    scene
        .ask(&[mp3])
        .await
        .refused("messages[0].content[0].format", "send wav");
    let many = vec![image(&data_url(&png(1, 1))); 17];
    scene.ask(&many).await.refused("messages[0].content[16]", "at most 16");
}

#[tokio::test]
async fn allowed_files_are_fetched_each_to_its_place() {
    let scene = Scene::new(vec![
        ("/a", redirect("b/c?d")),
        ("/b/c?d", file(&png(1, 2))),
        ("/e", file(&png(3, 4))),
    ])
    .await;
    let inline = image(&data_url(&png(5, 6)));
    let asked = scene
        .ask(&[
            image("http://pictures.test/a"),
            inline,
            image("http://pictures.test/e#f"),
        ])
        .await;
    assert_eq!(asked.status, 200, "{}", asked.body);
    let bytes: Vec<_> = asked.media.iter().map(|file| &*file.bytes).collect();
    assert_eq!(bytes, [png(1, 2), png(5, 6), png(3, 4)]);
    assert_eq!(asked.connections, [SocketAddr::new(OUTSIDE.parse().unwrap(), 80); 3]);
}

#[tokio::test]
async fn nothing_inside_is_ever_connected_to() {
    let scene = Scene::new(vec![]).await;
    for (url, rule) in [
        ("http://inside.test/a.png", "not on the public internet"),
        ("http://both.test/a.png", "not on the public internet"),
        ("http://127.0.0.1/a.png", "not on the public internet"),
        ("http://2130706433/a.png", "not on the public internet"),
        ("http://[::ffff:127.0.0.1]/a.png", "not on the public internet"),
        ("http://localhost/a.png", "'localhost' is not allowed"),
        ("http://pictures.test:22/a.png", "is not allowed"),
        ("http://pictures.test@127.0.0.1/a.png", "user name"),
        ("file:///etc/hostname", "scheme 'file'"),
        ("ftp://pictures.test/a.png", "scheme 'ftp'"),
        ("http://empty.test/a.png", "no address"),
        ("http://lost.test/a.png", "no address"),
    ] {
        let asked = scene.ask(&[image(url)]).await;
        asked.refused("messages[0].content[0]", rule);
        assert_eq!(asked.connections, [], "{url}");
    }
}

#[tokio::test]
async fn redirects_are_checked_like_first_addresses() {
    let scene = Scene::new(vec![
        ("/literal", redirect("http://127.0.0.1/SECRET")),
        ("/name", redirect("http://inside.test/")),
        ("/other", redirect("//elsewhere.test/")),
        ("/file", redirect("file:///etc/passwd")),
        ("/nowhere", b"HTTP/1.1 302 Found\r\ncontent-length: 0\r\n\r\n".to_vec()),
        ("/circle", redirect("/circle")),
    ])
    .await;
    for (path, rule, connections) in [
        ("literal", "not on the public internet", 1),
        ("name", "not on the public internet", 1),
        ("other", "'elsewhere.test' is not allowed", 1),
        ("file", "scheme 'file'", 1),
        ("nowhere", "did not answer with a file", 1),
        ("circle", "redirects more than 3 times", 4),
    ] {
        let asked = scene.ask(&[image(&format!("http://pictures.test/{path}"))]).await;
        asked.refused("messages[0].content[0]", rule);
        let outside = SocketAddr::new(OUTSIDE.parse().unwrap(), 80);
        assert_eq!(asked.connections, vec![outside; connections], "{path}");
    }
}

#[tokio::test]
async fn what_the_server_says_stays_inside_and_what_it_sends_is_bounded() {
    let endless = [
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n800\r\n".as_slice(),
        &[b'x'; 2048],
    ]
    .concat();
    let packed = b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 1\r\n\r\nx".to_vec();
    let mut scene = Scene::new(vec![
        (
            "/403",
            b"HTTP/1.1 403 SECRET\r\ncontent-length: 6\r\n\r\nSECRET".to_vec(),
        ),
        ("/junk", b"SECRET\r\n\r\n".to_vec()),
        ("/closed", vec![]),
        ("/cut", b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nSECRET".to_vec()),
        ("/text", file(b"SECRET")),
        (
            "/long",
            b"HTTP/1.1 200 OK\r\ncontent-length: 10000000000\r\n\r\n".to_vec(),
        ),
        ("/endless", endless),
        ("/packed", packed),
        ("/bomb", file(&png(20_000, 20_000))),
    ])
    .await;
    scene.limits.bytes_max = 1024;
    for (path, rule) in [
        ("403", "did not answer with a file"),
        ("junk", "did not answer with a file"),
        ("closed", "did not answer with a file"),
        ("cut", "did not answer with a file"),
        ("text", "send PNG, JPEG, WebP or GIF"),
        ("long", "more than 1024 bytes"),
        ("endless", "more than 1024 bytes"),
        ("packed", "did not answer with a file"),
        ("bomb", "pixels are too many"),
    ] {
        let asked = scene.ask(&[image(&format!("http://pictures.test/{path}"))]).await;
        asked.refused("messages[0].content[0]", rule);
    }
    // A server without TLS is not spoken to in the clear instead.
    let asked = scene.ask(&[image("https://pictures.test/text")]).await;
    asked.refused("messages[0].content[0]", "could not be reached");
}

#[tokio::test]
async fn all_fetched_files_together_are_bounded() {
    let mut scene = Scene::new(vec![("/a", file(&png(1, 2)))]).await;
    let part = image("http://pictures.test/a");
    scene.limits.fetched_bytes_max = png(1, 2).len() * 2;
    assert_eq!(scene.ask(&[part.clone(), part.clone()]).await.status, 200);
    let asked = scene.ask(&[part.clone(), part.clone(), part]).await;
    asked.refused("messages[0].content[2]", "together");
}

#[tokio::test]
async fn by_default_nothing_is_fetched() {
    let mut scene = Scene::new(vec![]).await;
    scene.limits = MediaLimits::default();
    let asked = scene.ask(&[image("http://pictures.test/a.png")]).await;
    asked.refused("messages[0].content[0]", "limits.media.allowed_hosts");
    assert_eq!(asked.connections, []);
}

/// The clock moves only when everybody waits.
#[tokio::test(start_paused = true)]
async fn a_server_that_trickles_is_given_up() {
    let mut scene = Scene::new(vec![]).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let town = Arc::get_mut(&mut scene.town).unwrap();
    town.server = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let head = b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n";
        for byte in head.iter().chain(std::iter::repeat(&b'x')) {
            if stream.write_all(&[*byte]).await.is_err() {
                return;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    });
    let started = Instant::now();
    let asked = scene.ask(&[image("http://pictures.test/a")]).await;
    asked.refused("messages[0].content[0]", "within 10 s");
    assert_eq!(started.elapsed(), Duration::from_secs(10));
}
