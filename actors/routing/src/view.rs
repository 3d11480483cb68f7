//! Who serves, how busy they say they are, and what this router has sent them itself.

use std::collections::{BTreeMap, VecDeque};

use cluster_messages::{
    ActorPath, Deadline, Epoch, InstanceRef, LoadReport, Registration, Role, Route, RouteDecision, SamplePoint,
};

/// Ends that may wait for their beginnings. Only messages that overtook each other between nodes are here, for a moment.
const EARLY_ENDS_MAX: usize = 256;
/// An encoder that has work and tells of no step in so many reports, a second apart, is suspected. Longer than a batch of the
/// largest pictures takes; an encoder steps with every batch.
const REPORTS_WITHOUT_A_STEP: u32 = 5;

/// Who serves and how busy they are.
#[derive(Clone, Debug, Default)]
pub struct View {
    instances: BTreeMap<ActorPath, Seen>,
    flights: BTreeMap<u64, Flight>,
    /// Tickets that ended before they began, the oldest first.
    early_ends: VecDeque<u64>,
}

/// One instance as this router sees it.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) registration: Registration,
    pub(crate) is_draining: bool,
    pub(crate) is_suspected: bool,
    /// Requests this router sent there that are not over.
    pub(crate) in_flight: u32,
    report: Option<(u64, SamplePoint)>,
    /// Reports in a row that told of work and of no step.
    idle_reports: u32,
}

/// A routing in force.
#[derive(Clone, Debug)]
struct Flight {
    decode: Option<InstanceRef>,
    prefill: Option<InstanceRef>,
    /// One for each medium.
    encoders: Vec<InstanceRef>,
    deadline: Deadline,
}

impl Flight {
    fn instances(&self) -> impl Iterator<Item = InstanceRef> {
        let workers = self.decode.into_iter().chain(self.prefill);
        workers.chain(self.encoders.iter().copied())
    }
}

impl Seen {
    pub(crate) const fn instance(&self) -> InstanceRef {
        self.registration.instance
    }

    /// Requests there: what it reported or what this router knows of, whichever is more. Reports are a moment old, and a
    /// burst must not all go to whoever looked idle a moment ago; other routers' requests are only in the reports.
    pub(crate) fn load(&self) -> u32 {
        let reported = self.report.map_or(0, |(_, sample)| sample.running + sample.waiting);
        reported.max(self.in_flight)
    }

    /// Whether it is thought to hang: somebody said so, or its own reports do.
    pub(crate) const fn is_suspected(&self) -> bool {
        self.is_suspected || self.idle_reports >= REPORTS_WITHOUT_A_STEP
    }

    /// Counts reports that tell of work and of no step. Of encoders only: a decode instance that waits for pages has work and
    /// rightly makes no step.
    fn watch_progress(&mut self, sample: SamplePoint) {
        let stands = self.report.is_some_and(|(_, last)| last.steps == sample.steps);
        let has_work = sample.running + sample.waiting > 0;
        let counts = self.instance().path.role == Role::Encoder && stands && has_work;
        self.idle_reports = if counts { self.idle_reports + 1 } else { 0 };
    }

    pub(crate) fn folds_prefill(&self) -> bool {
        self.registration.folds.contains(&Role::Prefill)
    }
}

impl View {
    /// A view of nobody.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes in a registration. One of an earlier life changes nothing; a new life starts without load, and without the
    /// suspicions against the old one.
    pub fn register(&mut self, registration: Registration) -> bool {
        let instance = registration.instance;
        match self.instances.get_mut(&instance.path) {
            Some(seen) if seen.instance().epoch > instance.epoch => return false,
            Some(seen) if seen.instance().epoch == instance.epoch => seen.registration = registration,
            _ => {
                let seen = Seen {
                    registration,
                    is_draining: false,
                    is_suspected: false,
                    in_flight: 0,
                    report: None,
                    idle_reports: 0,
                };
                self.instances.insert(instance.path, seen);
            }
        }
        true
    }

    /// Forgets an instance, unless a later life has registered since.
    pub fn unregister(&mut self, instance: InstanceRef) {
        if self.live(instance).is_some() {
            self.instances.remove(&instance.path);
        }
    }

    /// Takes in a load report; false when it is older than the last one or of another life.
    pub fn report(&mut self, report: &LoadReport) -> bool {
        let Some(seen) = self.live(report.instance) else {
            return false;
        };
        if seen.report.is_some_and(|(seq, _)| seq >= report.seq) {
            return false;
        }
        seen.watch_progress(report.sample);
        seen.report = Some((report.seq, report.sample));
        true
    }

    /// Whether an instance gets no new work because it is about to stop.
    pub fn set_draining(&mut self, instance: InstanceRef, is_draining: bool) {
        if let Some(seen) = self.live(instance) {
            seen.is_draining = is_draining;
        }
    }

    /// Whether an instance gets no new work because it makes no progress.
    pub fn set_suspected(&mut self, instance: InstanceRef, is_suspected: bool) {
        if let Some(seen) = self.live(instance) {
            seen.is_suspected = is_suspected;
        }
    }

    /// Counts a decision as load until [`View::end`] is called with the ticket, or the request's deadline passes. The
    /// ticket is the asker's, who can therefore end what it never got an answer to; an end that came first counts.
    pub fn begin(&mut self, ticket: u64, route: &Route, decision: &RouteDecision) {
        let flight = Flight {
            decode: Some(decision.decode),
            prefill: decision.prefill,
            encoders: decision.encoders.clone(),
            deadline: route.header.deadline,
        };
        self.take_off(ticket, flight);
    }

    /// The same for a decision about encoders alone.
    pub fn begin_encoding(&mut self, ticket: u64, route: &Route, encoders: &[InstanceRef]) {
        let flight = Flight {
            decode: None,
            prefill: None,
            encoders: encoders.to_vec(),
            deadline: route.header.deadline,
        };
        self.take_off(ticket, flight);
    }

    fn take_off(&mut self, ticket: u64, flight: Flight) {
        if let Some(place) = self.early_ends.iter().position(|early| *early == ticket) {
            self.early_ends.remove(place);
            return;
        }
        self.remove(ticket);
        self.count(&flight, |in_flight| in_flight + 1);
        self.flights.insert(ticket, flight);
    }

    /// The prefill instance has done its part of a decision. Called again it changes nothing.
    pub fn end_prefill(&mut self, ticket: u64) {
        self.end_part(ticket, |flight| flight.prefill.take().into_iter().collect());
    }

    /// The encoders have done their part of a decision.
    pub fn end_encoders(&mut self, ticket: u64) {
        self.end_part(ticket, |flight| std::mem::take(&mut flight.encoders));
    }

    /// The workers of a decision will not be asked; its encoders are.
    pub fn end_workers(&mut self, ticket: u64) {
        self.end_part(ticket, |flight| {
            flight.decode.take().into_iter().chain(flight.prefill.take()).collect()
        });
    }

    fn end_part(&mut self, ticket: u64, part: impl FnOnce(&mut Flight) -> Vec<InstanceRef>) {
        for instance in self.flights.get_mut(&ticket).map(part).unwrap_or_default() {
            if let Some(seen) = self.live(instance) {
                seen.in_flight = seen.in_flight.saturating_sub(1);
            }
        }
    }

    /// The work of a decision is over. Called again it changes nothing.
    pub fn end(&mut self, ticket: u64) {
        if self.remove(ticket) {
            return;
        }
        if self.early_ends.len() == EARLY_ENDS_MAX {
            self.early_ends.pop_front();
        }
        self.early_ends.push_back(ticket);
    }

    fn remove(&mut self, ticket: u64) -> bool {
        let Some(flight) = self.flights.remove(&ticket) else {
            return false;
        };
        self.count(&flight, |in_flight| in_flight.saturating_sub(1));
        true
    }

    /// Ends what nobody waits for any longer; `now` is on the clock of the deadlines.
    pub fn expire(&mut self, now: Deadline) {
        let over = self.flights.iter().filter(|(_, flight)| flight.deadline < now);
        for ticket in over.map(|(ticket, _)| *ticket).collect::<Vec<_>>() {
            self.remove(ticket);
        }
    }

    /// Decisions in force.
    pub fn in_flight(&self) -> usize {
        self.flights.len()
    }

    /// Everyone who is registered now, by path.
    pub fn instances(&self) -> impl Iterator<Item = InstanceRef> {
        self.instances.values().map(Seen::instance)
    }

    /// The life of an actor that is registered now.
    pub fn epoch(&self, path: ActorPath) -> Option<Epoch> {
        self.instances.get(&path).map(|seen| seen.instance().epoch)
    }

    /// The instances of a role, by path.
    pub(crate) fn of_role(&self, role: Role) -> impl Iterator<Item = &Seen> {
        self.instances
            .values()
            .filter(move |seen| seen.instance().path.role == role)
    }

    fn live(&mut self, instance: InstanceRef) -> Option<&mut Seen> {
        let seen = self.instances.get_mut(&instance.path)?;
        (seen.instance() == instance).then_some(seen)
    }

    /// Only lives that the work was sent to are counted: a restarted instance has nothing of it.
    fn count(&mut self, flight: &Flight, change: impl Fn(u32) -> u32) {
        for instance in flight.instances() {
            if let Some(seen) = self.live(instance) {
                seen.in_flight = change(seen.in_flight);
            }
        }
    }
}

#[cfg(test)]
mod tests;
