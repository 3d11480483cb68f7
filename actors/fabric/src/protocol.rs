//! What can be said to an actor. A protocol is the actor's mailbox type together with the wire form of its calls;
//! [`protocol!`](crate::protocol!) writes both from one list, so that a handler does not know where its caller lives.

use bytes::Bytes;
use cluster_messages::{Deadline, Epoch, ErrorKind, Header, InstanceRef, RequestError, TraceContext};
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use crate::{
    messaging::MessagingError,
    wire::{self, Wire, WireError},
};

/// Why a call brought no answer. One variant for each thing the caller can do about it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, thiserror::Error)]
pub enum CallError {
    /// Nobody is there: a dead node, or an actor that does not live on it. Ask discovery.
    #[error("unreachable: {0}")]
    Unreachable(String),
    /// No answer in time; the actor may have acted all the same.
    #[error("no answer before the deadline")]
    Deadline,
    /// The call may have reached the actor, and no answer comes: it dropped the call or died over it, or the connection
    /// broke.
    #[error("the call was dropped without an answer")]
    Dropped,
    /// The actor lives on in another epoch.
    #[error("{instance} is stale: its present epoch is {}", known.0)]
    Stale {
        /// Who was called.
        instance: InstanceRef,
        /// The epoch that lives.
        known: Epoch,
    },
    /// The node has too many calls in flight; try again later.
    #[error("overloaded: {0}")]
    Overloaded(String),
    /// The two sides do not speak alike.
    #[error("codec: {0}")]
    Codec(String),
    /// The actor refused.
    #[error(transparent)]
    App(RequestError),
}

impl From<WireError> for CallError {
    fn from(error: WireError) -> Self {
        CallError::Codec(error.to_string())
    }
}

impl From<MessagingError> for CallError {
    fn from(error: MessagingError) -> Self {
        match error {
            MessagingError::Timeout { .. } => CallError::Deadline,
            MessagingError::NoResponders(_) | MessagingError::Unavailable(_) => {
                CallError::Unreachable(error.to_string())
            }
            MessagingError::Lost(_) => CallError::Dropped,
            MessagingError::TooLarge { .. } | MessagingError::BadSubject(_) | MessagingError::BadHeader(_) => {
                CallError::Codec(error.to_string())
            }
        }
    }
}

impl From<CallError> for RequestError {
    fn from(error: CallError) -> Self {
        let kind = match error {
            CallError::App(error) => return error,
            CallError::Unreachable(_) => ErrorKind::Unavailable,
            CallError::Deadline => ErrorKind::Deadline,
            CallError::Dropped | CallError::Stale { .. } => ErrorKind::Lost,
            CallError::Overloaded(_) => ErrorKind::Overloaded,
            CallError::Codec(_) => ErrorKind::Internal,
        };
        RequestError::new(kind, error.to_string())
    }
}

/// What every call carries besides its request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CallContext {
    /// When the caller stops waiting.
    pub deadline: Deadline,
    /// The span that called.
    pub trace: TraceContext,
}

impl CallContext {
    /// An untraced call until `deadline`.
    pub fn until(deadline: Deadline) -> Self {
        Self {
            deadline,
            trace: TraceContext::default(),
        }
    }
}

impl From<&Header> for CallContext {
    fn from(header: &Header) -> Self {
        Self {
            deadline: header.deadline,
            trace: header.trace.clone(),
        }
    }
}

/// A call in an actor's mailbox.
#[derive(Debug)]
pub struct Call<R, T> {
    /// What is asked.
    pub request: R,
    /// Until when, and on whose behalf.
    pub context: CallContext,
    /// Where the answer goes. A handler may keep it and answer later.
    pub reply: ReplyTo<T>,
}

/// Takes the answer to one call. Dropped unanswered, the caller learns so at once.
#[derive(Debug)]
pub struct ReplyTo<T>(Way<T>);

#[derive(Debug)]
enum Way<T> {
    Here(oneshot::Sender<Result<T, CallError>>),
    There(oneshot::Sender<Result<Bytes, CallError>>),
    Nowhere,
}

impl<T: Wire> ReplyTo<T> {
    pub(crate) fn here(sender: oneshot::Sender<Result<T, CallError>>) -> Self {
        Self(Way::Here(sender))
    }

    pub(crate) fn nowhere() -> Self {
        Self(Way::Nowhere)
    }

    /// Answers.
    pub fn send(self, value: T) {
        self.settle(Ok(value));
    }

    /// Refuses.
    pub fn fail(self, error: RequestError) {
        self.settle(Err(CallError::App(error)));
    }

    /// Answers or refuses.
    pub fn settle(self, result: Result<T, CallError>) {
        // A caller that gave up does not need the answer.
        match self.0 {
            Way::Here(sender) => drop(sender.send(result)),
            Way::There(sender) => drop(sender.send(result.and_then(|value| Ok(wire::encode(&value)?)))),
            Way::Nowhere => {}
        }
    }

    /// Whether nobody waits for the answer.
    pub fn is_abandoned(&self) -> bool {
        match &self.0 {
            Way::Here(sender) => sender.is_closed(),
            Way::There(sender) => sender.is_closed(),
            Way::Nowhere => true,
        }
    }
}

/// A call that came by message, before anyone knows its type.
#[derive(Debug)]
pub struct RemoteCall {
    /// The name of what is asked.
    pub method: String,
    /// The encoded request.
    pub body: Bytes,
    /// Until when, and on whose behalf.
    pub context: CallContext,
    /// Takes the encoded answer; none: nobody waits.
    pub(crate) answer: Option<oneshot::Sender<Result<Bytes, CallError>>>,
}

impl RemoteCall {
    /// The mailbox message of this call, if its body is an `R`.
    pub fn into_message<P: Accepts<R>, R: Wire>(self) -> Result<P, CallError> {
        Ok(P::wrap(Call {
            request: wire::decode(&self.body)?,
            context: self.context,
            reply: ReplyTo(self.answer.map_or(Way::Nowhere, Way::There)),
        }))
    }
}

/// A mailbox type. Written by [`protocol!`](crate::protocol!).
pub trait Protocol: Sized + Send + 'static {
    /// Its name on the wire.
    const NAME: &'static str;

    /// The mailbox message of a call that came from elsewhere.
    fn from_remote(call: RemoteCall) -> Result<Self, CallError>;
}

/// That a protocol takes calls of type `R`.
pub trait Accepts<R: Wire>: Protocol {
    /// The name of the call on the wire.
    const METHOD: &'static str;
    /// What it answers.
    type Reply: Wire;

    /// The mailbox message of a call.
    fn wrap(call: Call<R, Self::Reply>) -> Self;
}

/// Writes an actor's mailbox type and its wire form.
///
/// Each variant under `enum` is a call: it holds a [`Call`] and is accepted from anywhere. Variants under `local` are the
/// actor's own and never leave the process.
///
/// ```
/// cluster_fabric::protocol! {
///     /// What a counter is told.
///     pub enum CounterMessage = "counter" {
///         /// Adds, and tells the sum.
///         Add(u32) -> u64,
///     }
///     local {
///         /// Time to forget.
///         Reset,
///     }
/// }
/// ```
#[macro_export]
macro_rules! protocol {
    (
        $(#[$meta:meta])*
        $visibility:vis enum $name:ident = $wire_name:literal {
            $( $(#[$call_meta:meta])* $call:ident($request:ty) -> $reply:ty ),* $(,)?
        }
        $( local {
            $( $(#[$local_meta:meta])* $local:ident $( ( $($field:ty),* $(,)? ) )? ),* $(,)?
        } )?
    ) => {
        $(#[$meta])*
        $visibility enum $name {
            $( $(#[$call_meta])* $call($crate::protocol::Call<$request, $reply>), )*
            $( $( $(#[$local_meta])* $local $( ( $($field),* ) )?, )* )?
        }

        impl $crate::protocol::Protocol for $name {
            const NAME: &'static str = $wire_name;

            fn from_remote(
                call: $crate::protocol::RemoteCall,
            ) -> ::core::result::Result<Self, $crate::protocol::CallError> {
                match call.method.as_str() {
                    $( ::core::stringify!($call) => call.into_message::<Self, $request>(), )*
                    other => ::core::result::Result::Err($crate::protocol::CallError::Codec(
                        ::std::format!("{} knows no call '{other}'", $wire_name),
                    )),
                }
            }
        }

        $(
            impl $crate::protocol::Accepts<$request> for $name {
                const METHOD: &'static str = ::core::stringify!($call);
                type Reply = $reply;

                fn wrap(call: $crate::protocol::Call<$request, $reply>) -> Self {
                    Self::$call(call)
                }
            }
        )*
    };
}
