//! The reference: a list of tensors, searched from end to end for everything.

use holdfast_tensors::{Key, Limits, Stats};

/// What is known of one tensor, declaration or view. `number` is its place in the list, forever.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    namespace: String,
    name: String,
    pub(crate) version: u32,
    pub(crate) shape: Shape,
    pub(crate) current: bool,
    pub(crate) pinned: bool,
    ready: bool,
    arriving: bool,
    gone: bool,
    producer: Option<String>,
    /// Bytes on the host.
    bytes: Option<Vec<u8>>,
    /// The tensor and the positions in it that a view shows.
    view: Option<(usize, Vec<usize>)>,
    /// Models, once for each reference.
    references: Vec<String>,
    transfers: usize,
    used_at: u64,
    /// Which use of all was the last one of it.
    used: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) size: usize,
    pub(crate) host: bool,
}

#[derive(Debug)]
pub(crate) struct Transfer {
    source: usize,
    target: usize,
}

#[derive(Debug)]
pub(crate) enum Copied {
    Done(usize),
    UnderWay(Transfer),
}

pub(crate) struct Reference {
    limits: Limits,
    entries: Vec<Entry>,
    /// Which model holds which tensor, itself or through views, in the order in which it came to.
    holds: Vec<(String, usize)>,
    now: u64,
    uses: u64,
    hits: u64,
    misses: u64,
    evicted: u64,
    expired: u64,
}

type Made = Result<usize, &'static str>;

impl Reference {
    pub(crate) fn new(limits: &Limits) -> Reference {
        let (entries, holds, limits) = (Vec::new(), Vec::new(), limits.clone());
        Reference {
            limits,
            entries,
            holds,
            now: 0,
            uses: 0,
            hits: 0,
            misses: 0,
            evicted: 0,
            expired: 0,
        }
    }

    pub(crate) fn look(&self, number: usize) -> Option<&Entry> {
        self.entries.get(number).filter(|entry| !entry.gone)
    }

    fn there(&self) -> impl Iterator<Item = (usize, &Entry)> {
        self.entries.iter().enumerate().filter(|(_, entry)| !entry.gone)
    }

    fn root(&self, number: usize) -> usize {
        self.entries[number].view.as_ref().map_or(number, |&(root, _)| root)
    }

    fn views(&self, root: usize) -> Vec<usize> {
        let of_root = |entry: &Entry| entry.view.as_ref().is_some_and(|&(other, _)| other == root);
        self.there().filter(|(_, entry)| of_root(entry)).map(|(number, _)| number).collect()
    }

    pub(crate) fn is_ready(&self, number: usize) -> bool {
        self.entries[self.root(number)].ready
    }

    pub(crate) fn is_idle(&self, number: usize) -> bool {
        let entry = &self.entries[number];
        let free = entry.references.is_empty() && !entry.pinned && entry.transfers == 0;
        free && self.views(number).into_iter().all(|view| self.is_idle(view))
    }

    fn bytes_of(&self, number: usize) -> u64 {
        let entry = &self.entries[number];
        let counts = entry.view.is_none() && (entry.ready || entry.arriving);
        if counts { entry.shape.size as u64 } else { 0 }
    }

    fn bytes(&self) -> u64 {
        self.there().map(|(number, _)| self.bytes_of(number)).sum()
    }

    /// Idle tensors with bytes, or idle entries without, the one used longest ago first.
    fn idle(&self, with_bytes: bool) -> Vec<usize> {
        let mut idle: Vec<usize> = self
            .there()
            .map(|(number, _)| number)
            .filter(|&number| self.is_idle(number) && (self.bytes_of(number) > 0) == with_bytes)
            .collect();
        idle.sort_by_key(|&number| self.entries[number].used);
        idle
    }

    fn idle_bytes(&self) -> u64 {
        self.idle(true).iter().map(|&number| self.bytes_of(number)).sum()
    }

    fn find(&self, key: Key<'_>) -> Option<usize> {
        let is_it = |entry: &Entry| {
            entry.current && entry.namespace == key.namespace && entry.name == key.name
        };
        self.there().find(|(_, entry)| is_it(entry)).map(|(number, _)| number)
    }

    fn use_one(&mut self, number: usize) {
        self.uses += 1;
        let (uses, now) = (self.uses, self.now);
        let entry = &mut self.entries[number];
        (entry.used, entry.used_at) = (uses, now);
    }

    fn touch(&mut self, number: usize) {
        self.use_one(number);
        self.use_one(self.root(number));
    }

    /// Removes a tensor with its views, and returns how many entries went.
    fn remove(&mut self, number: usize) -> usize {
        let mut removed = self.views(number);
        removed.push(number);
        removed.iter().for_each(|&number| self.entries[number].gone = true);
        removed.len()
    }

    /// Old versions that nothing keeps are gone. Tensors before views, which may go with them.
    fn settle(&mut self) {
        let unneeded = |&number: &usize| {
            let entry = &self.entries[number];
            !entry.gone && !entry.current && !entry.arriving && self.is_idle(number)
        };
        if let Some(number) = (0..self.entries.len()).find(unneeded) {
            self.remove(number);
            self.settle();
        }
    }

    fn check_room(&self, bytes: u64, new_entry: bool) -> Result<(), &'static str> {
        if self.bytes() - self.idle_bytes() + bytes > self.limits.budget_bytes {
            return Err("over_budget");
        }
        let busy = self.there().filter(|&(number, _)| !self.is_idle(number)).count();
        if new_entry && busy >= self.limits.max_entries { Err("too_many") } else { Ok(()) }
    }

    fn make_room(&mut self, bytes: u64, new_entry: bool) {
        while self.bytes() + bytes > self.limits.budget_bytes {
            let oldest = self.idle(true)[0];
            self.evicted += self.remove(oldest) as u64;
        }
        while new_entry && self.there().count() >= self.limits.max_entries {
            let oldest = [self.idle(false), self.idle(true)].concat()[0];
            self.evicted += self.remove(oldest) as u64;
        }
    }

    fn declared(&self, old: Option<usize>, shape: Shape) -> Result<Option<usize>, &'static str> {
        match old.filter(|&old| self.entries[old].view.is_none() && !self.entries[old].ready) {
            Some(old) if self.entries[old].shape == shape => Ok(Some(old)),
            Some(_) => Err("declared_otherwise"),
            None => Ok(None),
        }
    }

    fn add(&mut self, key: Key<'_>, shape: Shape) -> usize {
        self.entries.push(Entry {
            namespace: key.namespace.to_owned(),
            name: key.name.to_owned(),
            version: 1,
            shape,
            current: true,
            pinned: false,
            ready: false,
            arriving: false,
            gone: false,
            producer: None,
            bytes: None,
            view: None,
            references: Vec::new(),
            transfers: 0,
            used_at: 0,
            used: 0,
        });
        let number = self.entries.len() - 1;
        self.use_one(number);
        number
    }

    fn supersede(&mut self, old: Option<usize>) -> u32 {
        let Some(old) = old else { return 1 };
        self.entries[old].current = false;
        let version = self.entries[old].version + 1;
        self.settle();
        version
    }

    pub(crate) fn register(
        &mut self,
        key: Key<'_>,
        shape: Shape,
        bytes: Vec<u8>,
        producer: Option<&str>,
    ) -> Made {
        let old = self.find(key);
        let size = shape.size as u64;
        let number = match self.declared(old, shape)? {
            Some(declared) => {
                self.check_room(size, false)?;
                self.make_room(size, false);
                self.use_one(declared);
                declared
            }
            None => {
                self.check_room(size, true)?;
                let version = self.supersede(old);
                self.make_room(size, true);
                let number = self.add(key, shape);
                self.entries[number].version = version;
                number
            }
        };
        let entry = &mut self.entries[number];
        entry.ready = true;
        entry.bytes = Some(bytes);
        entry.producer = producer.map(str::to_owned).or(entry.producer.take());
        Ok(number)
    }

    pub(crate) fn declare(&mut self, key: Key<'_>, shape: Shape) -> Made {
        let old = self.find(key);
        if let Some(declared) = self.declared(old, shape)? {
            self.touch(declared);
            return Ok(declared);
        }
        if old.is_some() {
            return Err("already_there");
        }
        self.check_room(0, true)?;
        self.make_room(0, true);
        Ok(self.add(key, shape))
    }

    pub(crate) fn get(&mut self, key: Key<'_>) -> Made {
        let found = self.find(key).ok_or("not_found");
        let ready =
            |number: usize| if self.is_ready(number) { Ok(number) } else { Err("not_ready") };
        let found = found.and_then(ready);
        match found {
            Ok(number) => {
                self.hits += 1;
                self.touch(number);
            }
            Err(_) => self.misses += 1,
        }
        found
    }

    fn known(&self, number: usize) -> Made {
        self.look(number).map(|_| number).ok_or("gone")
    }

    pub(crate) fn references(&self, number: usize, model: &str) -> u64 {
        self.entries[number].references.iter().filter(|other| *other == model).count() as u64
    }

    pub(crate) fn acquire(&mut self, number: usize, model: &str) -> Result<u64, &'static str> {
        self.known(number)?;
        self.entries[number].references.push(model.to_owned());
        for held in [number, self.root(number)] {
            if !self.holds.contains(&(model.to_owned(), held)) {
                self.holds.push((model.to_owned(), held));
            }
        }
        self.touch(number);
        Ok(self.references(number, model))
    }

    pub(crate) fn release(&mut self, number: usize, model: &str) -> bool {
        let Some(entry) = self.entries.get_mut(number).filter(|entry| !entry.gone) else {
            return false;
        };
        let Some(position) = entry.references.iter().position(|other| other == model) else {
            return false;
        };
        entry.references.remove(position);
        self.touch(number);
        self.end_holds();
        self.settle();
        true
    }

    /// Whether a model has references to a tensor or its views.
    fn holds(&self, number: usize, model: &str) -> bool {
        let mut any = std::iter::once(number).chain(self.views(number));
        any.any(|number| self.references(number, model) > 0)
    }

    fn end_holds(&mut self) {
        let holds = std::mem::take(&mut self.holds);
        let left = |(model, number): &(String, usize)| self.holds(*number, model);
        self.holds = holds.into_iter().filter(left).collect();
    }

    pub(crate) fn share(
        &mut self,
        number: usize,
        from: &str,
        to: &str,
    ) -> Result<(), &'static str> {
        self.known(number)?;
        let made = self.entries[number].producer.as_deref() == Some(from);
        if !made && self.references(number, from) == 0 {
            return Err("not_its_model");
        }
        self.acquire(number, to).map(drop)
    }

    pub(crate) fn pin(&mut self, number: usize) -> Result<bool, &'static str> {
        self.known(number)?;
        self.touch(number);
        Ok(!std::mem::replace(&mut self.entries[number].pinned, true))
    }

    pub(crate) fn unpin(&mut self, number: usize) -> bool {
        if !self.look(number).is_some_and(|entry| entry.pinned) {
            return false;
        }
        self.entries[number].pinned = false;
        self.touch(number);
        self.settle();
        true
    }

    pub(crate) fn free(&mut self, number: usize) -> Result<u64, &'static str> {
        self.known(number)?;
        if !self.is_idle(number) {
            return Err("held");
        }
        let bytes = self.bytes_of(number);
        self.remove(number);
        Ok(bytes)
    }

    pub(crate) fn create_view(
        &mut self,
        of: usize,
        name: &str,
        offset: usize,
        size: usize,
        step: usize,
    ) -> Made {
        self.known(of)?;
        let parent = &self.entries[of];
        let whole: Vec<usize> = (0..parent.shape.size).collect();
        let shown = parent.view.as_ref().map_or(&whole, |(_, positions)| positions);
        let end = if size == 0 { offset } else { offset + (size - 1) * step + 1 };
        if end > shown.len() {
            return Err("bad_window");
        }
        let positions: Vec<usize> = (0..size).map(|index| shown[offset + index * step]).collect();
        let namespace = parent.namespace.clone();
        let key = Key::new(&namespace, name);
        let root = self.root(of);
        let old = self.find(key);
        if old == Some(root) {
            return Err("already_there");
        }
        self.touch(of);
        // The tensor must not go to make room for its own view.
        self.entries[root].transfers += 1;
        let room = self.check_room(0, true);
        let made = room.map(|()| {
            let version = self.supersede(old);
            self.make_room(0, true);
            let shape = Shape { size, host: self.entries[root].shape.host };
            let number = self.add(key, shape);
            let entry = &mut self.entries[number];
            entry.version = version;
            entry.view = Some((root, positions));
            number
        });
        self.entries[root].transfers -= 1;
        self.use_one(root);
        made
    }

    pub(crate) fn copy_to(
        &mut self,
        source: usize,
        key: Key<'_>,
        host: bool,
    ) -> Result<Copied, &'static str> {
        self.known(source)?;
        if !self.is_ready(source) {
            return Err("not_ready");
        }
        self.touch(source);
        self.entries[source].transfers += 1;
        let shape = Shape { size: self.entries[source].shape.size, host };
        let copied = match self.values(source) {
            Some(bytes) if host => {
                let made = self.register(key, shape, bytes, None);
                made.map(Copied::Done)
            }
            _ => {
                self.arrive(key, shape).map(|target| Copied::UnderWay(Transfer { source, target }))
            }
        };
        if !matches!(copied, Ok(Copied::UnderWay(_))) {
            self.departed(source);
        }
        copied
    }

    fn arrive(&mut self, key: Key<'_>, shape: Shape) -> Made {
        self.declared(self.find(key), shape)?;
        self.check_room(shape.size as u64, true)?;
        self.make_room(shape.size as u64, true);
        let number = self.add(key, shape);
        let entry = &mut self.entries[number];
        (entry.arriving, entry.current, entry.transfers) = (true, false, 1);
        Ok(number)
    }

    fn departed(&mut self, source: usize) {
        self.touch(source);
        self.entries[source].transfers -= 1;
        self.settle();
    }

    pub(crate) fn complete(&mut self, transfer: Transfer, bytes: Option<Vec<u8>>) -> Made {
        self.departed(transfer.source);
        let target = transfer.target;
        let Entry { namespace, name, shape, .. } = self.entries[target].clone();
        let old = self.find(Key::new(&namespace, &name));
        let declared = self.declared(old, shape).inspect_err(|_| {
            self.entries[target].gone = true;
        })?;
        let number = match declared {
            Some(declared) => {
                self.entries[target].gone = true;
                declared
            }
            None => {
                let version = self.supersede(old);
                let entry = &mut self.entries[target];
                (entry.arriving, entry.current, entry.transfers) = (false, true, 0);
                entry.version = version;
                target
            }
        };
        self.use_one(number);
        self.entries[number].ready = true;
        self.entries[number].bytes = bytes;
        Ok(number)
    }

    pub(crate) fn fail(&mut self, transfer: Transfer) {
        self.departed(transfer.source);
        self.entries[transfer.target].gone = true;
    }

    pub(crate) fn release_model(&mut self, namespace: &str, model: &str) -> usize {
        let held = |(other, number): &&(String, usize)| {
            other == model
                && self.entries[*number].namespace == namespace
                && self.references(*number, model) > 0
        };
        // What it came to hold last goes first.
        let held: Vec<usize> = self.holds.iter().rev().filter(held).map(|&(_, n)| n).collect();
        for &number in &held {
            self.entries[number].references.retain(|other| other != model);
            self.touch(number);
        }
        self.end_holds();
        self.settle();
        held.len()
    }

    pub(crate) fn optimize(&mut self) -> Vec<String> {
        let mut freed = Vec::new();
        loop {
            let idle = [self.idle(false), self.idle(true)].concat();
            let Some(&first) = idle.first() else { return freed };
            freed.push(self.entries[first].name.clone());
            self.remove(first);
        }
    }

    pub(crate) fn advance_to(&mut self, now: u64) -> usize {
        self.now = now;
        let Some(max_age) = self.limits.max_age else { return 0 };
        let mut expired = 0;
        while let Some(&old) = [self.idle(false), self.idle(true)]
            .concat()
            .iter()
            .find(|&&number| now - self.entries[number].used_at > max_age.as_millis() as u64)
        {
            expired += self.remove(old);
        }
        self.expired += expired as u64;
        expired
    }

    pub(crate) fn values(&self, number: usize) -> Option<Vec<u8>> {
        let bytes = self.entries[self.root(number)].bytes.as_ref()?;
        Some(match &self.entries[number].view {
            Some((_, positions)) => positions.iter().map(|&position| bytes[position]).collect(),
            None => bytes.clone(),
        })
    }

    pub(crate) fn model_usage(&self, namespace: &str, model: &str) -> (usize, u64, u64) {
        let (mut tensors, mut bytes, mut shared) = (0, 0, 0);
        for (number, entry) in self.there().filter(|(_, entry)| entry.namespace == namespace) {
            tensors += usize::from(self.references(number, model) > 0);
            if entry.view.is_none() && self.holds(number, model) {
                bytes += self.bytes_of(number);
                let others = super::MODELS.iter().filter(|&&other| other != model);
                if others.into_iter().any(|other| self.holds(number, other)) {
                    shared += self.bytes_of(number);
                }
            }
        }
        (tensors, bytes, shared)
    }

    pub(crate) fn stats(&self) -> Stats {
        let count = |is: &dyn Fn(&Entry) -> bool| self.there().filter(|(_, e)| is(e)).count();
        let arriving: u64 = self
            .there()
            .filter(|(_, entry)| entry.arriving)
            .map(|(_, entry)| entry.shape.size as u64)
            .sum();
        let lookups = self.hits + self.misses;
        Stats {
            tensors: count(&|entry| entry.ready && entry.view.is_none()),
            views: count(&|entry| entry.view.is_some()),
            declared: count(&|entry| !entry.ready && entry.view.is_none() && !entry.arriving),
            old_versions: count(&|entry| !entry.current && !entry.arriving),
            pinned: count(&|entry| entry.pinned),
            arriving: count(&|entry| entry.arriving),
            bytes: self.bytes(),
            arriving_bytes: arriving,
            idle_bytes: self.idle_bytes(),
            budget_bytes: self.limits.budget_bytes,
            hits: self.hits,
            misses: self.misses,
            hit_rate: (lookups > 0).then(|| self.hits as f64 / lookups as f64),
            evicted: self.evicted,
            expired: self.expired,
        }
    }
}
