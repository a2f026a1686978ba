/* The life of one job between workers whose leases run out while they do not notice.
 *
 * A worker claims under a random number, works for any time, and writes the end; its lease may run out at any moment, and
 * the reaper then gives the job to somebody else. A worker that was stopped goes on later as if nothing had happened.
 * An end is accepted only for the claim that wrote it, and is counted for the work that was done under that claim.
 *
 * With -DBROKEN the end is written by the job's id alone: a run is ended by somebody who did not do its work.
 */
#define WORKERS 2
#define CLAIMS 4

byte owner;                 /* the claim that holds the job, 0 for nobody */
bool is_done;
byte next_claim = 1;
byte ends;
bool has_worked[CLAIMS];    /* which claims' handlers have finished their work */
bool is_alive[WORKERS];
byte holder;                /* which worker the claim belongs to */
byte refused;

active [WORKERS] proctype worker() {
    byte mine;
    byte me = _pid;

again:
    atomic {
        (next_claim < CLAIMS && owner == 0 && !is_done) ->
        is_alive[me] = true;
        mine = next_claim;
        owner = mine;
        holder = me;
        next_claim++
    }
    /* the handler: it may take longer than the lease */
    has_worked[mine] = true;
    /* the end, one statement */
    atomic {
        if
#ifdef BROKEN
        :: !is_done && owner != 0 ->
#else
        :: !is_done && owner == mine ->
#endif
            assert(has_worked[owner]);
            is_done = true;
            owner = 0;
            ends++;
            assert(ends == 1)
        :: else -> refused++
        fi
    }
    if
    :: is_done -> skip
    :: else -> goto again
    fi
}

/* A lease runs out at any moment, whatever its worker does. */
active proctype time() {
end:
    do
    :: atomic { (owner != 0 && is_alive[holder]) -> is_alive[holder] = false }
    :: is_done -> break
    od
}

/* Takes jobs of dead leases only. */
active proctype reaper() {
end:
    do
    :: atomic { (owner != 0 && !is_alive[holder]) -> owner = 0 }
    :: is_done -> break
    od
}

ltl ends_at_most_once { [] (ends <= 1) }
