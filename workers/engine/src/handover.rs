//! What comes from outside: pages from a prefill worker for a `Decode` job, pages from a lower tier and rows of media for
//! any job.

use std::sync::Arc;

use bytes::Bytes;
use cluster_messages::TokenOut;

use crate::{
    BlockId, Engine, JobId, ModelError, page,
    sequence::{Phase, Rank},
};

/// Why pages or a start were not taken. The job itself is unchanged.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum HandoverError {
    /// It ended, was aborted, or never was.
    #[error("job {} is not in the engine or has no blocks", job.0)]
    UnknownJob {
        /// The job named.
        job: JobId,
    },
    /// It does not wait for this.
    #[error("job {} does not wait for {what}", job.0)]
    NotExpected {
        /// The job named.
        job: JobId,
        /// What came.
        what: &'static str,
    },
    /// The page is not part of the reservation.
    #[error("page {page} is outside the reserved pages {first_page}..{end_page}")]
    Outside {
        /// The page offered.
        page: u32,
        /// First page reserved.
        first_page: u32,
        /// One past the last.
        end_page: u32,
    },
    /// The page came before.
    #[error("page {page} came twice")]
    Twice {
        /// The page offered.
        page: u32,
    },
    /// The page carries other KV classes than those that are still read behind the prompt.
    #[error("page {page} carries other KV classes than are read behind the prompt")]
    Classes {
        /// The page offered.
        page: u32,
    },
    /// More pages than were asked for.
    #[error("{got} pages where {asked} were asked for")]
    TooMany {
        /// Pages asked for.
        asked: u32,
        /// Pages offered.
        got: usize,
    },
    /// The job cannot start: pages have not come.
    #[error("{missing} of {reserved} reserved pages have not come")]
    Missing {
        /// How many have not come.
        missing: u32,
        /// How many are needed.
        reserved: u32,
    },
    /// The prompt has no such medium.
    #[error("the prompt has no medium {medium}")]
    UnknownMedium {
        /// The index named.
        medium: u32,
    },
    /// A medium's rows are not as many as its placeholders, or not as wide as the model.
    #[error("medium {medium} came with {got} numbers where {expected} were expected: {tokens} rows of {width}")]
    MediumSize {
        /// The medium's index.
        medium: u32,
        /// Numbers offered.
        got: usize,
        /// Numbers expected.
        expected: usize,
        /// The medium's placeholders.
        tokens: u32,
        /// The model's width.
        width: u32,
    },
    /// The first token is no token of this model.
    #[error("token id {token} is outside the vocabulary of {vocabulary} tokens")]
    OutsideVocabulary {
        /// The token offered.
        token: u32,
        /// The model's vocabulary.
        vocabulary: u32,
    },
    /// The model does not take the page.
    #[error(transparent)]
    Model(#[from] ModelError),
}

impl Engine {
    /// Answers `Event::Lookup` with the pages found, a prefix of those asked for. A page that does not fit the layout counts
    /// as not found, and so do those after it; pages behind the last one from which the sequence can go on, because all
    /// blocks of its windows are there, are not used. A lower tier never decides about success: the only error besides a
    /// wrong call is one of the model itself, after which the job must be aborted.
    pub fn provide(&mut self, job: JobId, pages: Vec<Bytes>) -> Result<(), HandoverError> {
        let sequence = self
            .scheduler
            .running_job(job)
            .ok_or(HandoverError::UnknownJob { job })?;
        let Phase::Lookup { asked } = sequence.phase else {
            return Err(HandoverError::NotExpected {
                job,
                what: "pages of a lower tier",
            });
        };
        let got = pages.len();
        if got > asked as usize {
            return Err(HandoverError::TooMany { asked, got });
        }
        // The next step announces what a `Decode` job still lacks, and lets others compute.
        sequence.phase = Phase::Announce;
        let rank = sequence.rank;
        self.restore(rank, &pages)?;
        Ok(())
    }

    /// Writes pages of a lower tier behind those that a sequence has found, as many as can be used.
    fn restore(&mut self, rank: Rank, pages: &[Bytes]) -> Result<(), ModelError> {
        let limits = self.scheduler.limits;
        let classes = &self.info.classes;
        let parts = pages.iter().map(|bytes| page::parts(classes, bytes).ok());
        let parts: Vec<Vec<Option<&[u8]>>> = parts
            .map_while(|parts| parts.filter(|parts| parts[0].is_some()))
            .collect();
        let (sequence, kv) = self.scheduler.parts(rank);
        let first = sequence.computed / limits.block_tokens;
        let here = parts.iter().map(|parts| parts[1..].iter().map(Option::is_some));
        let end = kv.reachable(first, sequence.reader(), here);
        let position = (end * limits.block_tokens).max(sequence.reader());
        if end == first || !kv.can_move(&sequence.table, position, end) {
            return Ok(());
        }
        kv.slide(&mut sequence.table, position);
        let covered = kv.cover(&mut sequence.table, end);
        assert!(covered >= end, "a table that can move has the blocks for it");
        for (page, parts) in (first..end).zip(&parts) {
            page::import(self.model.as_mut(), sequence.table.page(page), parts)?;
            sequence.restored(kv, limits);
        }
        Ok(())
    }

    /// Answers `Event::Features`: for each medium, by its index, its rows `[tokens, width]`. Nothing is taken if one of them
    /// is wrong. Rows that are not needed any more are dropped in silence: their placeholders were found meanwhile, or the
    /// job was preempted and will ask again.
    pub fn supply(&mut self, job: JobId, media: Vec<(u32, Arc<[f32]>)>) -> Result<(), HandoverError> {
        let limits = self.scheduler.limits;
        let width = self.info.width;
        let sequence = self.scheduler.job_mut(job).ok_or(HandoverError::UnknownJob { job })?;
        for (medium, rows) in &media {
            check_rows(*medium, sequence.rows.tokens(*medium), rows.len(), width)?;
        }
        for (medium, rows) in media {
            sequence.rows.supply(medium, rows, sequence.computed);
        }
        if sequence.phase == Phase::Features && sequence.rows.runnable(sequence.computed, limits) > 0 {
            sequence.phase = Phase::Compute;
        }
        Ok(())
    }

    /// Takes a page of a `Decode` job that was announced by `Event::Reserved`.
    pub fn import_page(&mut self, job: JobId, page: u32, bytes: &[u8]) -> Result<(), HandoverError> {
        let sequence = self
            .scheduler
            .running_job(job)
            .ok_or(HandoverError::UnknownJob { job })?;
        let Phase::Receive(arrivals) = &mut sequence.phase else {
            return Err(HandoverError::NotExpected { job, what: "pages" });
        };
        let (first_page, end_page) = (arrivals.first_page, arrivals.end_page());
        if !(first_page..end_page).contains(&page) {
            return Err(HandoverError::Outside {
                page,
                first_page,
                end_page,
            });
        }
        let place = (page - first_page) as usize;
        if arrivals.arrived[place] {
            return Err(HandoverError::Twice { page });
        }
        let blocks: Vec<BlockId> = sequence.table.page(page).collect();
        let wanted = || blocks.iter().map(|block| *block != BlockId::NONE);
        let expected = page::len(&self.info.classes, wanted());
        if bytes.len() != expected {
            let got = bytes.len();
            return Err(ModelError::PageSize { expected, got }.into());
        }
        let parts = page::parts(&self.info.classes, bytes)?;
        if !wanted().eq(parts.iter().map(Option::is_some)) {
            return Err(HandoverError::Classes { page });
        }
        page::import(self.model.as_mut(), blocks.into_iter(), &parts)?;
        arrivals.arrived[place] = true;
        arrivals.missing -= 1;
        Ok(())
    }

    /// Lets a `Decode` job go on from the first token of answer, which its prefill worker chose, once all pages are there.
    /// The next step hands the token out.
    pub fn start(&mut self, job: JobId, first: TokenOut, cached_tokens: u32) -> Result<(), HandoverError> {
        let limits = self.scheduler.limits;
        let vocabulary = self.info.vocabulary;
        if first.id >= vocabulary {
            return Err(HandoverError::OutsideVocabulary {
                token: first.id,
                vocabulary,
            });
        }
        let sequence = self
            .scheduler
            .running_job(job)
            .ok_or(HandoverError::UnknownJob { job })?;
        let Phase::Receive(arrivals) = &sequence.phase else {
            return Err(HandoverError::NotExpected {
                job,
                what: "its first token",
            });
        };
        if arrivals.missing > 0 {
            let reserved = arrivals.arrived.len() as u32;
            return Err(HandoverError::Missing {
                missing: arrivals.missing,
                reserved,
            });
        }
        let rank = sequence.rank;
        let (sequence, kv) = self.scheduler.parts(rank);
        sequence.phase = Phase::Started(first);
        sequence.started = true;
        sequence.cached_tokens = cached_tokens;
        sequence.announced = true;
        sequence.computed = sequence.len();
        sequence.store(kv, limits);
        Ok(())
    }
}

fn check_rows(medium: u32, tokens: Option<u32>, got: usize, width: u32) -> Result<(), HandoverError> {
    let tokens = tokens.ok_or(HandoverError::UnknownMedium { medium })?;
    let expected = tokens as usize * width as usize;
    if got == expected {
        return Ok(());
    }
    Err(HandoverError::MediumSize {
        medium,
        got,
        expected,
        tokens,
        width,
    })
}
