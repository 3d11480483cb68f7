//! Files in a request: in data URLs, or fetched from hosts that the operator allowed.
//!
//! ```text
//! part ─▶ data URL ─▶ bytes ─▶ checked by their header ─▶ MediaFile
//! part ─▶ allowed address ─▶ Link ── after admission ──▶ fetch ─▶ bytes ─▶ checked ─▶ MediaFile
//! ```
//! Nothing is decoded here: a header says what a file is and how large it would become.

pub(crate) mod data_url;
mod fetch;
mod network;

use std::sync::Arc;

use bytes::Bytes;
use cluster_media::{MediaError, Target};
use cluster_messages::{Content, MediaFile, MediumKind, Part, TextInput, TextRequest};
use cluster_telemetry::names::{attributes, spans};
use futures::{StreamExt, TryStreamExt, stream};
use tokio::sync::Semaphore;
use tracing::{Instrument, field::Empty};

pub(crate) use self::fetch::Fetcher;
pub use self::network::{Internet, Network};
use crate::{error::ApiError, settings::MediaLimits};

/// A file that is yet to be fetched.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Link {
    /// The field that names it.
    pub(crate) param: String,
    pub(crate) kind: MediumKind,
    /// Which of the request's media it is.
    pub(crate) medium: usize,
    pub(crate) target: Target,
}

/// A file that passed every check that needs no decoding.
pub(crate) fn checked(kind: MediumKind, bytes: Bytes, limits: &MediaLimits) -> Result<MediaFile, MediaError> {
    let limits = limits.of_file();
    limits.check_bytes(bytes.len() as u64)?;
    match kind {
        MediumKind::Image => limits.check_picture(&cluster_media::probe(&bytes)?)?,
        MediumKind::Audio => limits.check_sound(&cluster_media::probe_sound(&bytes)?)?,
    }
    Ok(MediaFile { kind, bytes })
}

/// Fetches files, a bounded number at a time over all requests.
/// Fetches of one request at once.
const FETCHES_EACH_MAX: usize = 3;

pub(crate) struct Fetches {
    fetcher: Fetcher,
    limits: MediaLimits,
    pool: Semaphore,
}

impl Fetches {
    pub(crate) fn new(limits: &MediaLimits, network: Arc<dyn Network>) -> Self {
        Self {
            fetcher: Fetcher::new(limits, network),
            pool: Semaphore::new(limits.fetches_max),
            limits: limits.clone(),
        }
    }

    /// Fetches what `links` name and puts it into `request`. Dropping the future ends its connections.
    pub(crate) async fn fill(&self, request: &mut TextRequest, links: Vec<Link>) -> Result<(), ApiError> {
        let fetched = stream::iter(links)
            .map(|link| self.one(link))
            // Few at a time: what one request may hold is bounded by the sum that is checked as they come.
            .buffered(self.limits.fetches_max.clamp(1, FETCHES_EACH_MAX));
        let mut fetched = std::pin::pin!(fetched);
        let mut total = 0;
        while let Some((link, file)) = fetched.try_next().await? {
            total += file.bytes.len();
            let most = self.limits.fetched_bytes_max;
            if total > most {
                let rule = format!("the files of this request have more than {most} bytes together; send fewer");
                return Err(ApiError::invalid(link.param, rule));
            }
            *place(request, link.medium) = file;
        }
        Ok(())
    }

    async fn one(&self, link: Link) -> Result<(Link, MediaFile), ApiError> {
        let _permit = self.pool.acquire().await.expect("the semaphore is never closed");
        let span = tracing::info_span!(
            spans::GATEWAY_FETCH,
            { attributes::SERVER_ADDRESS } = link.target.host,
            { attributes::ERROR_TYPE } = Empty,
        );
        let fetched = self.fetcher.fetch(&link.target).instrument(span.clone()).await;
        let bytes = fetched.map_err(|error| {
            span.record(attributes::ERROR_TYPE, error.code());
            ApiError::invalid(&link.param, error.to_string())
        })?;
        match checked(link.kind, bytes, &self.limits) {
            Ok(file) => Ok((link, file)),
            Err(error) => Err(ApiError::invalid(&link.param, error.to_string())),
        }
    }
}

/// The request's medium number `medium`.
fn place(request: &mut TextRequest, medium: usize) -> &mut MediaFile {
    let TextInput::Chat(chat) = &mut request.input else {
        unreachable!("only a conversation has parts, and only parts have links");
    };
    let contents = chat.messages.iter_mut().filter_map(|message| message.content.as_mut());
    let parts = contents.flat_map(|content| match content {
        Content::Parts(parts) => parts.as_mut_slice(),
        Content::Text(_) => &mut [],
    });
    let mut media = parts.filter_map(|part| match part {
        Part::Media(file) => Some(file),
        Part::Text(_) => None,
    });
    media.nth(medium).expect("a link is made together with its part")
}
