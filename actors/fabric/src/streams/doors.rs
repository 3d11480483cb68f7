//! Who serves what in this process, and the fence: the last life of each actor is remembered, older ones are refused.
//! Every carrier keeps one of these for the instances it serves.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use cluster_messages::{ActorPath, Epoch, ErrorKind, InstanceRef, RequestError};
use tokio::sync::mpsc;

use super::carrier::{Offer, RawIncoming, ServeError};

/// Open doors by actor path and protocol.
#[derive(Default)]
pub struct Doors {
    lives: Mutex<HashMap<ActorPath, Life>>,
}

struct Life {
    epoch: Epoch,
    doors: HashMap<&'static str, mpsc::Sender<Offer>>,
}

/// When an overloaded door may have room again: queues drain in well under a second, and the router knows better ones.
const RETRY_AFTER_MS: u32 = 1_000;

impl Doors {
    /// Opens a door. A later life closes all doors of the one before.
    pub fn serve(
        self: &Arc<Self>,
        instance: InstanceRef,
        protocol: &'static str,
        queue: usize,
    ) -> Result<RawIncoming, ServeError> {
        let (sender, offers) = mpsc::channel(queue.max(1));
        let mut lives = self.lock();
        let life = lives.entry(instance.path).or_insert_with(|| Life::new(instance.epoch));
        if instance.epoch < life.epoch {
            let known = life.epoch;
            return Err(ServeError::Stale { instance, known });
        }
        if instance.epoch > life.epoch {
            *life = Life::new(instance.epoch);
        }
        if life.doors.contains_key(protocol) {
            return Err(ServeError::Taken { instance, protocol });
        }
        life.doors.insert(protocol, sender);
        let registration = Box::new(OpenDoor {
            doors: self.clone(),
            instance,
            protocol,
        });
        Ok(RawIncoming { offers, registration })
    }

    /// Puts `offer` before the door of `to`, or says why not.
    pub fn offer(&self, to: InstanceRef, protocol: &str, offer: Offer) -> Result<(), RequestError> {
        let door = self.find(to, protocol)?;
        door.try_send(offer).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => {
                RequestError::new(ErrorKind::Overloaded, format!("the queue of {to} is full"))
                    .retry_after(RETRY_AFTER_MS)
            }
            mpsc::error::TrySendError::Closed(_) => does_not_serve(to, protocol),
        })
    }

    /// The door of `to`.
    fn find(&self, to: InstanceRef, protocol: &str) -> Result<mpsc::Sender<Offer>, RequestError> {
        let lives = self.lock();
        let life = lives.get(&to.path).ok_or_else(|| does_not_serve(to, protocol))?;
        if life.epoch != to.epoch {
            let message = format!("{to} is stale: {} lives with epoch {}", to.path, life.epoch.0);
            return Err(RequestError::new(ErrorKind::Lost, message));
        }
        let door = life.doors.get(protocol).cloned();
        door.ok_or_else(|| does_not_serve(to, protocol))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ActorPath, Life>> {
        self.lives.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Life {
    fn new(epoch: Epoch) -> Self {
        Self {
            epoch,
            doors: HashMap::new(),
        }
    }
}

fn does_not_serve(to: InstanceRef, protocol: &str) -> RequestError {
    RequestError::new(ErrorKind::Unavailable, format!("{to} does not serve {protocol} here"))
}

impl fmt::Debug for Doors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set()
            .entries(self.lock().iter().map(|(path, life)| InstanceRef {
                path: *path,
                epoch: life.epoch,
            }))
            .finish()
    }
}

/// Closes its door when dropped, unless a later life already did.
struct OpenDoor {
    doors: Arc<Doors>,
    instance: InstanceRef,
    protocol: &'static str,
}

impl Drop for OpenDoor {
    fn drop(&mut self) {
        let mut lives = self.doors.lock();
        let life = lives
            .get_mut(&self.instance.path)
            .filter(|life| life.epoch == self.instance.epoch);
        if let Some(life) = life {
            life.doors.remove(self.protocol);
        }
    }
}
