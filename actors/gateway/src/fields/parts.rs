//! The parts of a message: text, pictures and sounds.

use cluster_messages::{MediaFile, MediumKind, Part};

use super::Draft;
use crate::{
    error::ApiError,
    json::Json,
    media::{Link, checked, data_url},
    read::{Node, Path},
};

pub(super) fn part(draft: &mut Draft<'_>, node: Node<'_>) -> Result<Part, ApiError> {
    let entries = node.object()?;
    let Some((_, kind)) = entries.iter().find(|(key, _)| key == "type") else {
        return Err(node.wrong("has no type; use {\"type\": \"text\", \"text\": …}"));
    };
    let path = Path::Key(&node.path, "type");
    match (Node { json: kind, path }).text()? {
        "text" | "refusal" => {
            let text = member(draft, node, &["text", "refusal"])?.ok_or_else(|| node.wrong("has no text"))?;
            text.text().map(|text| Part::Text(text.to_owned()))
        }
        "image_url" | "image" | "input_image" => {
            let member = member(draft, node, &["image_url", "image"])?;
            let member = member.ok_or_else(|| node.wrong("has no image_url"))?;
            located(draft, MediumKind::Image, member)
        }
        "audio_url" => {
            let member = member(draft, node, &["audio_url"])?;
            let member = member.ok_or_else(|| node.wrong("has no audio_url"))?;
            located(draft, MediumKind::Audio, member)
        }
        "input_audio" => {
            let member = member(draft, node, &["input_audio"])?;
            input_audio(draft, member.ok_or_else(|| node.wrong("has no input_audio"))?)
        }
        "video_url" | "video" => Err(node.wrong("videos are not supported; send single frames as image_url parts")),
        other => {
            let other: String = other.chars().take(32).collect();
            let rule = "use text, image_url, input_audio or audio_url";
            Err(node.wrong(format!("'{other}' parts are not supported by this server; {rule}")))
        }
    }
}

/// The member under one of `names`; what else a part has is without effect.
fn member<'n>(draft: &mut Draft<'_>, node: Node<'n>, names: &[&str]) -> Result<Option<Node<'n>>, ApiError> {
    let mut found = None;
    for (key, json) in node.object()? {
        match &**key {
            "type" => {}
            name if names.contains(&name) && *json != Json::Null => found = Some((name, json)),
            _ => draft.ignore(Path::Key(&node.path, key)),
        }
    }
    // The member's path would point to this call's stack, so it goes by the part's.
    Ok(found.map(|(_, json)| Node { json, path: node.path }))
}

/// A medium that is named by its address: a string, or an object with it as `url`.
fn located(draft: &mut Draft<'_>, kind: MediumKind, node: Node<'_>) -> Result<Part, ApiError> {
    let url = match node.json {
        Json::Object(entries) => {
            let mut url = None;
            for (key, json) in entries {
                match (&**key, json) {
                    ("url", Json::Text(text)) => url = Some(&**text),
                    ("detail", Json::Text(detail)) if detail == "auto" => {}
                    // How large a picture becomes is the model's to say.
                    _ => draft.ignore(Path::Key(&node.path, key)),
                }
            }
            url.ok_or_else(|| node.wrong("has no url; send a data: URL or an http(s) URL"))?
        }
        _ => node.text()?,
    };
    if data_url::is_data_url(url) {
        let bytes = data_url::decode(url).map_err(|rule| node.wrong(rule))?;
        return inline(draft, kind, bytes, node);
    }
    let target = draft.limits.media.allowed_hosts.check(url.trim());
    let target = target.map_err(|error| node.wrong(error.to_string()))?;
    let medium = count(draft, node)?;
    draft.links.push(Link {
        param: node.path.to_string(),
        kind,
        medium,
        target,
    });
    // Its bytes come when they are fetched.
    let bytes = bytes::Bytes::new();
    Ok(Part::Media(MediaFile { kind, bytes }))
}

/// A sound as base64, with its format beside it.
fn input_audio(draft: &mut Draft<'_>, node: Node<'_>) -> Result<Part, ApiError> {
    let mut encoded = None;
    for (key, json) in node.object()? {
        let field = Node {
            json,
            path: Path::Key(&node.path, key),
        };
        match &**key {
            "data" => encoded = Some(field.text()?),
            "format" if !field.text()?.eq_ignore_ascii_case("wav") => {
                let format: String = field.text()?.chars().take(32).collect();
                return Err(field.wrong(format!("'{format}' is not supported; send wav")));
            }
            "format" => {}
            _ => draft.ignore(field.path),
        }
    }
    let encoded = encoded.ok_or_else(|| node.wrong("has no data; send a WAV file as base64"))?;
    let bytes = if data_url::is_data_url(encoded) {
        data_url::decode(encoded)
    } else {
        data_url::decode_base64(encoded.as_bytes())
    };
    inline(draft, MediumKind::Audio, bytes.map_err(|rule| node.wrong(rule))?, node)
}

/// A medium that came with the request.
fn inline(draft: &mut Draft<'_>, kind: MediumKind, bytes: Vec<u8>, node: Node<'_>) -> Result<Part, ApiError> {
    count(draft, node)?;
    let file = checked(kind, bytes.into(), &draft.limits.media);
    file.map(Part::Media).map_err(|error| node.wrong(error.to_string()))
}

/// Counts one more medium and says which it is.
fn count(draft: &mut Draft<'_>, node: Node<'_>) -> Result<usize, ApiError> {
    let most = draft.limits.media.count_max;
    if draft.media == most {
        return Err(node.wrong(format!("a request may have at most {most} pictures and sounds")));
    }
    draft.media += 1;
    Ok(draft.media - 1)
}
