//! Why a question was not answered: a kind for programs, a message and a remedy for people.

use std::collections::HashMap;

use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

/// The domain of our reasons in `google.rpc.ErrorInfo`.
const DOMAIN: &str = "cluster";

/// What the asker can do about a fault.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FaultKind {
    /// The question is wrong.
    Invalid,
    /// What was asked for is not there.
    NotFound,
    /// The cluster cannot answer now, or nothing answers at the address.
    Unavailable,
    /// This cluster cannot do that.
    Unsupported,
    /// A defect of ours.
    Internal,
}

/// The kinds with their codes on the wire and their names as reasons.
const KINDS: [(FaultKind, Code, &str); 5] = [
    (FaultKind::Invalid, Code::InvalidArgument, "INVALID"),
    (FaultKind::NotFound, Code::NotFound, "NOT_FOUND"),
    (FaultKind::Unavailable, Code::Unavailable, "UNAVAILABLE"),
    (FaultKind::Unsupported, Code::Unimplemented, "UNSUPPORTED"),
    (FaultKind::Internal, Code::Internal, "INTERNAL"),
];

impl FaultKind {
    fn row(self) -> (Code, &'static str) {
        let row = KINDS.iter().find(|(kind, ..)| *kind == self);
        let (_, code, reason) = row.expect("KINDS lists every kind");
        (*code, reason)
    }
}

/// A question that was not answered.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{reason}")]
pub struct Fault {
    /// For programs.
    pub kind: FaultKind,
    /// What is wrong: lower case, with the values involved.
    pub reason: String,
    /// What to do about it; may be empty.
    pub remedy: String,
}

impl Fault {
    /// A fault of `kind`.
    pub fn new(kind: FaultKind, reason: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            kind,
            reason: reason.into(),
            remedy: remedy.into(),
        }
    }
}

impl From<Fault> for Status {
    fn from(fault: Fault) -> Self {
        let (code, reason) = fault.kind.row();
        let metadata = HashMap::from([("remedy".to_owned(), fault.remedy)]);
        let details = ErrorDetails::with_error_info(reason, DOMAIN, metadata);
        Status::with_error_details(code, fault.reason, details)
    }
}

impl From<Status> for Fault {
    fn from(status: Status) -> Self {
        let row = KINDS.iter().find(|(_, code, _)| *code == status.code());
        let remedy = status
            .get_details_error_info()
            .and_then(|mut info| info.metadata.remove("remedy"));
        Fault {
            kind: row.map_or(FaultKind::Internal, |(kind, ..)| *kind),
            reason: status.message().into(),
            remedy: remedy.unwrap_or_default(),
        }
    }
}
